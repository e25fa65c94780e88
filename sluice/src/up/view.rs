//! What the user sees while the program runs: the screen, lines, or nothing.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use kube::Client;
use sluice_runtime::shutdown::{Signals, Token};
use tokio::task::JoinHandle;

use super::{UpArgs, store_location};
use crate::screen::{self, Screen, Setup};
use crate::view::{self, Lines};

/// How the program shows what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The screen.
    Screen,
    /// Lines on a terminal.
    TerminalLines,
    /// Lines elsewhere, or nothing.
    Other,
}

/// Decides how the program shows what it does.
pub(super) fn kind(args: &UpArgs) -> Kind {
    if !args.quiet && !args.plain && screen::is_possible() {
        Kind::Screen
    } else if io::stdout().is_terminal() {
        Kind::TerminalLines
    } else {
        Kind::Other
    }
}

/// Prints where the API serves, and warns if nothing outlives the program.
pub(super) fn announce(lines: &Lines, addr: SocketAddr, kubeconfig: &Path, args: &UpArgs) {
    lines.print(&format!(
        "The API serves on {addr}. export KUBECONFIG={}",
        kubeconfig.display()
    ));
    if args.state.is_none() {
        lines.print(store_location::warning_without_state(&args.store));
    }
}

/// What is shown, until it is closed.
pub(super) enum View {
    /// The screen.
    Screen(Screen),
    /// Progress as lines.
    Lines(Token, JoinHandle<()>),
    /// Nothing (`--quiet`).
    Nothing,
}

impl View {
    /// Shows what happens. If the screen cannot be shown, lines are printed.
    pub(super) fn start(
        args: &UpArgs,
        client: &Client,
        lines: &Arc<Lines>,
        signals: &Signals,
        setup: Setup,
    ) -> Self {
        if args.quiet {
            return Self::Nothing;
        }
        if kind(args) == Kind::Screen {
            match Screen::show(client.clone(), lines, signals.clone(), setup) {
                Ok(screen) => return Self::Screen(screen),
                Err(error) => lines.print(&format!("Warning: no screen: {error}")),
            }
        }
        let stop = Token::new();
        let follow = view::follow(client.clone(), Arc::clone(lines), stop.clone());
        Self::Lines(stop, tokio::spawn(follow))
    }

    /// Ends what is shown. The terminal is that of the user again, with the notices of the screen.
    pub(super) async fn close(self, lines: &Lines) {
        match self {
            Self::Screen(screen) => {
                for notice in screen.close().await {
                    lines.print(&notice);
                }
            }
            Self::Lines(stop, task) => {
                stop.cancel();
                drop(task.await); // an error of the view must not fail the shutdown
            }
            Self::Nothing => {}
        }
    }
}
