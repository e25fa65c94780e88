//! Checks and rewrites a parsed template before its execution: all functions must be known, each body counts as a step, values are
//! printed in the format of Go, and `set` and similar functions change their variable.

use gotmpl::parse::{
    ActionNode, BranchNode, CommandNode, Expr, ListNode, Node, PipeNode, Pos, SmolStr, TextNode,
};

use super::TemplateError;
use super::functions::{self, NOTHING, PRINT};

/// Functions that change the map of their first argument.
const CHANGING: [&str; 6] = [
    "set",
    "unset",
    "merge",
    "mergeOverwrite",
    "mustMerge",
    "mustMergeOverwrite",
];

/// Checks and rewrites one body of a template.
///
/// # Errors
/// It calls an unknown function.
pub(super) fn prepare(list: &ListNode, set: functions::Functions) -> Result<ListNode, TemplateError> {
    let mut nodes = vec![Node::Text(TextNode {
        pos: list.pos,
        text: "".into(),
    })];
    for node in &list.nodes {
        node_into(&mut nodes, node, set)?;
    }
    Ok(ListNode { pos: list.pos, nodes })
}

fn node_into(nodes: &mut Vec<Node>, node: &Node, set: functions::Functions) -> Result<(), TemplateError> {
    match node {
        Node::Action(action) => {
            check_pipe(&action.pipe, set)?;
            let mut pipe = action.pipe.clone();
            nodes.extend(change(&mut pipe)?.map(Node::Action));
            if pipe.decl.is_empty() {
                pipe.commands.push(CommandNode {
                    pos: pipe.pos,
                    args: vec![Expr::Identifier(pipe.pos, SmolStr::new_static(PRINT))],
                });
            }
            nodes.push(Node::Action(ActionNode {
                pos: action.pos,
                pipe,
            }));
        }
        Node::If(branch) => nodes.push(Node::If(prepare_branch(branch, set)?)),
        Node::Range(branch) => nodes.push(Node::Range(prepare_branch(branch, set)?)),
        Node::With(branch) => nodes.push(Node::With(prepare_branch(branch, set)?)),
        Node::List(list) => nodes.push(Node::List(prepare(list, set)?)),
        Node::Template(call) => {
            let mut call = call.clone();
            match &call.pipe {
                Some(pipe) => check_pipe(pipe, set)?,
                // Without an argument, the dot of the called template is nil.
                None => call.pipe = Some(call_of(call.pos, NOTHING)),
            }
            nodes.push(Node::Template(call));
        }
        Node::Text(_) | Node::Define(_) | Node::Break(_) | Node::Continue(_) => nodes.push(node.clone()),
    }
    Ok(())
}

/// Returns the call of a function without arguments.
fn call_of(pos: Pos, name: &'static str) -> PipeNode {
    PipeNode {
        pos,
        decl: Vec::new(),
        commands: vec![CommandNode {
            pos,
            args: vec![Expr::Identifier(pos, SmolStr::new_static(name))],
        }],
        is_assign: false,
    }
}

fn prepare_branch(branch: &BranchNode, set: functions::Functions) -> Result<BranchNode, TemplateError> {
    check_pipe(&branch.pipe, set)?;
    Ok(BranchNode {
        pos: branch.pos,
        pipe: branch.pipe.clone(),
        body: prepare(&branch.body, set)?,
        else_body: branch
            .else_body
            .as_ref()
            .map(|list| prepare(list, set))
            .transpose()?,
    })
}

/// `{{ $_ := set $m .. }}` becomes `{{ $m = set $m .. }}{{ $_ := $m }}`: maps here are values.
fn change(pipe: &mut PipeNode) -> Result<Option<ActionNode>, TemplateError> {
    let Some(first) = pipe.commands.first_mut() else {
        return Ok(None);
    };
    let (pos, name, variable) = match first.args.as_slice() {
        [Expr::Identifier(pos, name), target, ..] if CHANGING.contains(&name.as_str()) => match target {
            Expr::Variable(_, variable, fields) if fields.is_empty() => (*pos, name, variable.clone()),
            // The change of an inner map would be lost silently.
            Expr::Variable(..) | Expr::Field(..) | Expr::Dot(_) if name == "set" || name == "unset" => {
                return Err(TemplateError::LostChange {
                    name: name.to_string(),
                    line: pos.line,
                });
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    debug_assert!(CHANGING.contains(&name.as_str()));
    let read = CommandNode {
        pos,
        args: vec![Expr::Variable(pos, variable.clone(), Vec::new())],
    };
    let changing = std::mem::replace(first, read);
    Ok(Some(ActionNode {
        pos,
        pipe: PipeNode {
            pos,
            decl: vec![variable],
            commands: vec![changing],
            is_assign: true,
        },
    }))
}

fn check_pipe(pipe: &PipeNode, set: functions::Functions) -> Result<(), TemplateError> {
    pipe.commands
        .iter()
        .flat_map(|command| &command.args)
        .try_for_each(|expression| check_expression(expression, set))
}

fn check_expression(expression: &Expr, set: functions::Functions) -> Result<(), TemplateError> {
    match expression {
        Expr::Identifier(pos, name) => functions::check(name, set, pos.line),
        Expr::Pipe(_, pipe) => check_pipe(pipe, set),
        Expr::Chain(_, inner, _) => check_expression(inner, set),
        _ => Ok(()),
    }
}
