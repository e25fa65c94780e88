//! The keys of the user, read from the terminal in a thread.

use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{
    self, Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
};
use sluice_runtime::shutdown::Token;
use tokio::sync::mpsc::UnboundedSender;

use super::model::Event;

/// Time after which the thread sees that the screen has ended.
const POLL: Duration = Duration::from_millis(200);

/// A key that has a meaning on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A letter, a digit or a sign.
    Char(char),
    /// A key that moves the selection or the text.
    Move(Move),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Ctrl-C. It is not a signal while the screen reads the keys.
    Interrupt,
}

/// Where the selection or the text moves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// To the first line.
    Home,
    /// To the last line.
    End,
}

impl Move {
    /// Returns the index after the move, in a list whose last index is `last`; a page has `page` lines.
    pub(super) fn apply(self, index: usize, last: usize, page: usize) -> usize {
        let moved = match self {
            Self::Up => index.saturating_sub(1),
            Self::Down => index.saturating_add(1),
            Self::PageUp => index.saturating_sub(page),
            Self::PageDown => index.saturating_add(page),
            Self::Home => 0,
            Self::End => last,
        };
        moved.min(last)
    }
}

impl Key {
    /// Returns the move of a key outside of an input line, where letters are text. Letters as in `less`.
    pub(super) const fn movement(self) -> Option<Move> {
        Some(match self {
            Self::Move(movement) => movement,
            Self::Char('k') => Move::Up,
            Self::Char('j') => Move::Down,
            Self::Char('b') => Move::PageUp,
            Self::Char(' ') => Move::PageDown,
            Self::Char('g') => Move::Home,
            Self::Char('G') => Move::End,
            Self::Char(_) | Self::Enter | Self::Escape | Self::Backspace | Self::Interrupt => return None,
        })
    }
}

/// Sends the keys until `stop`.
pub(super) fn read(sender: UnboundedSender<Event>, stop: Token) {
    thread::spawn(move || {
        while !stop.is_cancelled() {
            let input = match event::poll(POLL) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let event = match input {
                Ok(TerminalEvent::Key(event)) => key(&event).map(Event::Key),
                // The screen asks the terminal for its size before it draws.
                Ok(TerminalEvent::Resize(..)) => Some(Event::Resized),
                Ok(_) => None,
                Err(error) => {
                    tracing::warn!(%error, "the keys of the terminal cannot be read any more");
                    return;
                }
            };
            if event.is_some_and(|event| sender.send(event).is_err()) {
                return;
            }
        }
    });
}

fn key(event: &KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let has_control = event
        .modifiers
        .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    Some(match event.code {
        KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(_) if has_control => return None,
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Move(Move::Up),
        KeyCode::Down => Key::Move(Move::Down),
        KeyCode::PageUp => Key::Move(Move::PageUp),
        KeyCode::PageDown => Key::Move(Move::PageDown),
        KeyCode::Home => Key::Move(Move::Home),
        KeyCode::End => Key::Move(Move::End),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        key(&KeyEvent::new(code, modifiers))
    }

    #[test]
    fn control_c_interrupts_and_other_control_keys_are_no_letters() {
        assert_eq!(
            pressed(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Key::Interrupt)
        );
        assert_eq!(pressed(KeyCode::Char('y'), KeyModifiers::CONTROL), None);
        assert_eq!(pressed(KeyCode::Char('y'), KeyModifiers::ALT), None);
        assert_eq!(
            pressed(KeyCode::Char('G'), KeyModifiers::SHIFT),
            Some(Key::Char('G'))
        );
        assert_eq!(pressed(KeyCode::Esc, KeyModifiers::NONE), Some(Key::Escape));
    }

    #[test]
    fn a_move_stays_in_the_list() {
        for (movement, index, moved) in [
            (Move::Up, 0, 0),
            (Move::Down, 9, 9),
            (Move::Down, 3, 4),
            (Move::PageUp, 7, 2),
            (Move::PageDown, 7, 9),
            (Move::Home, 7, 0),
            (Move::End, 7, 9),
        ] {
            assert_eq!(movement.apply(index, 9, 5), moved, "{movement:?}");
        }
    }
}
