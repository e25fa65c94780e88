//! What the screen knows: the objects, the selection, and the question that waits. Pure: an event changes it and may ask for an
//! effect.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{Resource, ResourceExt as _};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_cli::run;
use sluice_cli::stack::{self, StackState};

use super::decision::Decision;
use super::keys::Key;
use super::page::{Page, PageKind};

/// Rows around the list of stacks, at least. They are not part of a page of the list.
const ROWS_AROUND_STACKS: u16 = 15;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// Sources changed.
    Sources(Change<GitRepository>),
    /// Stacks changed.
    Stacks(Change<Terraform>),
    /// Runs changed.
    Runs(Change<TerraformRun>),
    /// The user pressed a key.
    Key(Key),
    /// Time passed.
    Time(Timestamp),
    /// The terminal has another size. Nothing but the drawing depends on it; see [`Model::resize`].
    Resized,
    /// The program has something to say.
    Notice(String),
    /// The program ends: it waits for the runs in progress.
    Stopping,
}

/// A change of the objects of one kind.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// These are all objects.
    All(Vec<K>),
    /// This object was created or changed.
    One(Box<K>),
    /// The object with this full name was deleted.
    Gone(String),
}

impl<K: Resource> Change<K> {
    fn write(self, objects: &mut BTreeMap<String, K>) {
        match self {
            Self::All(all) => {
                *objects = all
                    .into_iter()
                    .map(|object| (full_name(&object), object))
                    .collect();
            }
            Self::One(object) => {
                objects.insert(full_name(&*object), *object);
            }
            Self::Gone(name) => {
                objects.remove(&name);
            }
        }
    }
}

/// What the program has to do.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Approve or reject this plan of the stack.
    Decide {
        /// What the user decided.
        decision: Decision,
        /// The stack.
        stack: Box<Terraform>,
        /// The id of the plan that the user has seen.
        plan: String,
    },
    /// End as after a signal.
    Interrupt,
}

/// A question or an input line at the bottom of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Whether the plan is approved, or rejected.
    Decide {
        /// The decision that is asked for.
        decision: Decision,
        /// The full name of the stack.
        stack: String,
        /// The id of the plan.
        plan: String,
    },
    /// Whether the program ends or, when it is ending, whether it interrupts the runs.
    Quit,
    /// The filter is being typed.
    Filter,
}

/// What does not change while the program runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Path of the kubeconfig.
    pub(crate) kubeconfig: String,
    /// Path of the log; empty: it goes to standard error.
    pub(crate) log: String,
    /// Whether all data is lost when the program ends.
    pub(crate) in_memory: bool,
    /// Whether colours are allowed.
    pub(crate) colours: bool,
}

/// The state of the screen.
pub(super) struct Model {
    pub(super) setup: Setup,
    pub(super) sources: BTreeMap<String, GitRepository>,
    pub(super) stacks: BTreeMap<String, Terraform>,
    pub(super) runs: BTreeMap<String, TerraformRun>,
    pub(super) now: Timestamp,
    /// Full name of the selected stack; empty: there is none.
    pub(super) selected: String,
    pub(super) filter: String,
    /// What is shown instead of the overview.
    pub(super) page: Option<Page>,
    pub(super) prompt: Option<Prompt>,
    pub(super) notices: Vec<String>,
    pub(super) is_stopping: bool,
    columns: u16,
    rows: u16,
}

impl Model {
    /// Creates the state without objects.
    pub(super) fn new(setup: Setup, now: Timestamp) -> Self {
        Self {
            setup,
            sources: BTreeMap::new(),
            stacks: BTreeMap::new(),
            runs: BTreeMap::new(),
            now,
            selected: String::new(),
            filter: String::new(),
            page: None,
            prompt: None,
            notices: Vec::new(),
            is_stopping: false,
            columns: 80,
            rows: 24,
        }
    }

    /// Sets the size of the terminal.
    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        (self.columns, self.rows) = (columns, rows);
        self.refresh_page();
    }

    /// Changes the state, and returns what the program has to do.
    pub(super) fn apply(&mut self, event: Event) -> Option<Effect> {
        let mut effect = None;
        match event {
            Event::Sources(change) => change.write(&mut self.sources),
            Event::Stacks(change) => change.write(&mut self.stacks),
            Event::Runs(change) => change.write(&mut self.runs),
            Event::Key(key) => effect = self.press(key),
            Event::Time(now) => self.now = now,
            Event::Resized => {}
            Event::Notice(text) => self.notices.push(text),
            Event::Stopping => self.is_stopping = true,
        }
        self.check_selection();
        self.check_prompt();
        self.refresh_page();
        effect
    }

    /// Returns the stacks that the filter lets through, by name.
    pub(super) fn visible_stacks(&self) -> Vec<&Terraform> {
        let filter = self.filter.to_lowercase();
        let is_visible = |name: &str, stack: &Terraform| {
            let state = stack::state(stack).as_str();
            name.to_lowercase().contains(&filter) || state.to_lowercase().contains(&filter)
        };
        let visible = self.stacks.iter().filter(|(name, stack)| is_visible(name, stack));
        visible.map(|(_, stack)| stack).collect()
    }

    /// Returns the index of the selected stack among the visible ones.
    pub(super) fn selected_index(&self, visible: &[&Terraform]) -> usize {
        let position = visible
            .iter()
            .position(|stack| stack::full_name(stack) == self.selected);
        position.unwrap_or_default()
    }

    /// Returns the stacks that wait for the user, with the ids of their plans.
    pub(super) fn waiting_stacks(&self) -> impl Iterator<Item = (&Terraform, &str)> {
        self.stacks
            .values()
            .filter(|stack| {
                // The destroy of a deleted object may be held too.
                matches!(
                    stack::state(stack),
                    StackState::AwaitsApproval | StackState::Deleting
                )
            })
            .filter_map(|stack| stack::pending_plan(stack).map(|plan| (stack, plan)))
    }

    /// Returns the counts of the changes of a plan; empty: its run is gone.
    pub(super) fn changes(&self, plan: &str) -> &str {
        let made = |run: &&TerraformRun| run.status.as_ref().is_some_and(|status| status.plan_id == plan);
        let newest = self.runs.values().filter(made).max_by_key(|run| run::number(run));
        newest
            .and_then(|run| run.status.as_ref())
            .map_or("", |status| status.changes.as_str())
    }

    /// Returns the runs in progress, by name.
    pub(super) fn active_runs(&self) -> Vec<&TerraformRun> {
        let runs = self.runs.values();
        runs.filter(|run| !run::phase(run).is_final()).collect()
    }

    /// Returns the runs of a stack, newest first.
    pub(super) fn runs_of(&self, stack: &Terraform) -> Vec<TerraformRun> {
        let uid = stack.uid().unwrap_or_default();
        let runs = self.runs.values();
        let mut runs: Vec<_> = runs
            .filter(|run| run.spec.terraform.uid == uid)
            .cloned()
            .collect();
        run::sort_newest_first(&mut runs);
        runs
    }

    fn press(&mut self, key: Key) -> Option<Effect> {
        if key == Key::Interrupt {
            self.prompt = None;
            return Some(Effect::Interrupt);
        }
        if let Some(prompt) = self.prompt.take() {
            return self.answer(prompt, key);
        }
        if key.movement().is_some() {
            self.move_to(key);
            return None;
        }
        match key {
            Key::Char('q') => self.prompt = Some(Prompt::Quit),
            Key::Char('?') => self.open(PageKind::Help),
            Key::Char('a') => self.ask_for(Decision::Approve),
            Key::Char('x') => self.ask_for(Decision::Reject),
            Key::Char('l') => self.open(PageKind::Log),
            Key::Char('p') => self.open(PageKind::Plan),
            Key::Enter if self.page.is_none() => self.open(PageKind::Plan),
            Key::Char('/') if self.page.is_none() => self.prompt = Some(Prompt::Filter),
            Key::Escape if self.page.is_some() => self.page = None,
            Key::Escape => self.filter.clear(),
            _ => {}
        }
        None
    }

    fn answer(&mut self, prompt: Prompt, key: Key) -> Option<Effect> {
        let is_yes = matches!(key, Key::Char('y' | 'Y'));
        match prompt {
            Prompt::Filter => {
                self.edit_filter(key);
                None
            }
            Prompt::Quit => is_yes.then_some(Effect::Interrupt),
            Prompt::Decide {
                decision,
                stack,
                plan,
            } if is_yes => {
                let stack = self.stacks.get(&stack)?.clone();
                self.notices.push(format!("{} {plan}.", decision.progress()));
                Some(Effect::Decide {
                    decision,
                    stack: Box::new(stack),
                    plan,
                })
            }
            Prompt::Decide { decision, .. } => {
                self.notices.push(format!("Nothing was {}.", decision.result()));
                None
            }
        }
    }

    /// Types into the filter; Enter and Escape end it.
    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Move(_) => self.move_to(key),
            Key::Escape => {
                self.filter.clear();
                return;
            }
            Key::Enter | Key::Interrupt => return,
        }
        self.prompt = Some(Prompt::Filter);
    }

    /// Moves the text of the page or the selection.
    fn move_to(&mut self, key: Key) {
        let Some(movement) = key.movement() else { return };
        if let Some(page) = &mut self.page {
            page.scroll(movement, self.rows);
            return;
        }
        let visible = self.visible_stacks();
        let last = visible.len().saturating_sub(1);
        let page = usize::from(self.rows.saturating_sub(ROWS_AROUND_STACKS).max(1));
        let moved = movement.apply(self.selected_index(&visible), last, page);
        let selected = visible.get(moved).map(|stack| stack::full_name(stack));
        self.selected = selected.unwrap_or_default();
    }

    fn open(&mut self, kind: PageKind) {
        if self.selected.is_empty() && kind != PageKind::Help {
            self.notices.push("There is no stack yet.".to_owned());
            return;
        }
        self.page = Some(Page::new(kind));
    }

    /// Shows the plan of the selected stack and asks.
    fn ask_for(&mut self, decision: Decision) {
        let Some(stack) = self.stacks.get(&self.selected) else {
            return;
        };
        match decision.plan_of(stack) {
            Ok(plan) => {
                let plan = plan.to_owned();
                self.prompt = Some(Prompt::Decide {
                    decision,
                    stack: self.selected.clone(),
                    plan,
                });
                self.open(PageKind::Plan);
            }
            Err(error) => self.notices.push(error.to_string()),
        }
    }

    /// Selects another stack if the selected one is not visible any more.
    fn check_selection(&mut self) {
        if self.page.is_some() && self.stacks.contains_key(&self.selected) {
            return;
        }
        let names: Vec<String> = self.visible_stacks().into_iter().map(stack::full_name).collect();
        if !names.contains(&self.selected) {
            self.selected = names.into_iter().next().unwrap_or_default();
            self.page = self.page.take().filter(|page| page.kind == PageKind::Help);
        }
    }

    /// Withdraws the question about a plan that does not wait any more: the answer would be about another plan.
    fn check_prompt(&mut self) {
        let Some(Prompt::Decide {
            decision,
            stack,
            plan,
        }) = &self.prompt
        else {
            return;
        };
        let pending = self.stacks.get(stack).and_then(stack::pending_plan);
        if pending != Some(plan.as_str()) {
            let result = decision.result();
            self.notices
                .push(format!("{plan} does not wait any more: nothing was {result}."));
            self.prompt = None;
        }
    }

    fn refresh_page(&mut self) {
        if let Some(mut page) = self.page.take() {
            page.refresh(self, self.columns);
            self.page = Some(page);
        }
    }
}

/// Returns namespace and name: `default/app`.
pub(super) fn full_name<K: Resource>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
