//! The screen of `sluice up` on a terminal: sources, stacks, runs in progress and what waits for the user, with keys to read a
//! plan, to approve or reject it and to follow a log.
//!
//! [`model`] is the state, changed by events; [`render`] draws it. Both are pure. Keys ([`keys`]), watches ([`objects`]) and notices
//! of the program become events; decisions ([`decision`]) and the end of the program are effects, which this module carries out.

mod decision;
mod keys;
mod model;
mod objects;
mod page;
mod render;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use kube::Client;
pub(crate) use model::Setup;
use model::{Effect, Event, Model};
use sluice_runtime::clock::{Clock as _, SystemClock};
use sluice_runtime::shutdown::{Signals, Token};
use terminal::Terminal;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use crate::view::Lines;

/// Time between two drawings in which nothing happens: the timers of runs have seconds.
const TICK: Duration = Duration::from_secs(1);

/// Returns whether the screen can be shown: keys can be read and the terminal can move its cursor.
pub(crate) fn is_possible() -> bool {
    let term = std::env::var_os("TERM");
    let (stdin, stdout) = (io::stdin(), io::stdout());
    is_suitable(stdin.is_terminal(), stdout.is_terminal(), term.as_deref()) && !is_in_background()
}

fn is_suitable(stdin: bool, stdout: bool, term: Option<&OsStr>) -> bool {
    stdin && stdout && term != Some(OsStr::new("dumb"))
}

/// Returns whether a shell started the program with `&`: the kernel would stop it when it reads keys.
fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(io::stdin());
    foreground.is_ok_and(|group| group != rustix::process::getpgrp())
}

/// The screen while it is shown.
pub(crate) struct Screen {
    stop: Token,
    task: JoinHandle<Vec<String>>,
}

impl Screen {
    /// Takes the terminal and shows the screen. Lines that the program prints become notices on it.
    ///
    /// # Errors
    /// The terminal does not support it.
    pub(crate) fn show(client: Client, lines: &Lines, signals: Signals, setup: Setup) -> io::Result<Self> {
        let terminal = Terminal::take()?;
        let stop = Token::new();
        let (sender, events) = mpsc::unbounded_channel();
        keys::read(sender.clone(), stop.clone());
        objects::follow(&client, &sender, &stop);
        let display = Display {
            client,
            signals,
            model: Model::new(setup, SystemClock.now()),
            terminal,
            sender,
            events,
            notices: lines.divert(),
            stop: stop.clone(),
        };
        let task = tokio::spawn(display.run());
        Ok(Self { stop, task })
    }

    /// Gives the terminal back. Returns the notices, which the user has seen only on the screen.
    pub(crate) async fn close(self) -> Vec<String> {
        self.stop.cancel();
        self.task.await.unwrap_or_default() // a panic has given the terminal back
    }
}

struct Display {
    client: Client,
    signals: Signals,
    model: Model,
    terminal: Terminal,
    sender: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    notices: UnboundedReceiver<String>,
    stop: Token,
}

impl Display {
    /// Shows the screen until it is closed or the terminal fails; the program goes on without it. Returns the notices.
    async fn run(mut self) -> Vec<String> {
        let stopping = self.signals.token();
        let mut ticks = tokio::time::interval(TICK);
        loop {
            if let Err(error) = self.draw() {
                tracing::warn!(%error, "the screen ends");
                break;
            }
            let event = tokio::select! {
                () = self.stop.cancelled() => break,
                () = stopping.cancelled(), if !self.model.is_stopping => Event::Stopping,
                Some(event) = self.events.recv() => event,
                Some(text) = self.notices.recv() => Event::Notice(text),
                _ = ticks.tick() => Event::Time(SystemClock.now()),
            };
            self.handle(event);
            // Many objects are drawn once.
            while let Ok(event) = self.events.try_recv() {
                self.handle(event);
            }
        }
        self.stop.cancel();
        self.notices.close();
        while let Ok(text) = self.notices.try_recv() {
            self.model.notices.push(text);
        }
        self.model.notices
    }

    fn draw(&mut self) -> io::Result<()> {
        let (columns, rows) = self.terminal.size()?;
        self.model.resize(columns, rows);
        let model = &self.model;
        self.terminal.draw(|frame| render::render(model, frame))
    }

    fn handle(&mut self, event: Event) {
        match self.model.apply(event) {
            None => {}
            Some(Effect::Interrupt) => self.signals.interrupt(),
            Some(Effect::Decide {
                decision,
                stack,
                plan,
            }) => {
                let (client, sender) = (self.client.clone(), self.sender.clone());
                tokio::spawn(async move {
                    let notice = decision.carry_out(client, &stack, &plan).await;
                    let _ = sender.send(Event::Notice(notice)); // the screen may have ended
                });
            }
        }
    }
}
