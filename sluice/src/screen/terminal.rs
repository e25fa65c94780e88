//! The terminal: taken for the screen, and given back on every way out.

use std::io::{self, Stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Frame, TerminalOptions, Viewport};

/// Whether the terminal shows the screen. It is a property of the process, since a panic of any task gives the terminal back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it shows the screen. It is given back when the value is dropped.
pub(super) struct Terminal {
    screen: ratatui::Terminal<CrosstermBackend<Stdout>>,
    area: Rect,
}

impl Terminal {
    /// Takes the terminal: raw mode, and the alternate screen, so that what the terminal showed before comes back.
    ///
    /// # Errors
    /// The terminal rejects a mode, or cannot be written.
    pub(super) fn take() -> io::Result<Self> {
        give_back_on_panic();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        Self::prepare().inspect_err(|_| give_back())
    }

    fn prepare() -> io::Result<Self> {
        execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        let area = area();
        let options = TerminalOptions {
            viewport: Viewport::Fixed(area),
        };
        let screen = ratatui::Terminal::with_options(CrosstermBackend::new(io::stdout()), options)?;
        Ok(Self { screen, area })
    }

    /// Returns columns and rows, and adapts to a new size.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(super) fn size(&mut self) -> io::Result<(u16, u16)> {
        let area = area();
        if area != self.area && IS_TAKEN.load(Ordering::SeqCst) {
            self.screen.resize(area)?;
            self.area = area;
        }
        Ok((area.width, area.height))
    }

    /// Draws the screen.
    ///
    /// # Errors
    /// The terminal cannot be written, or a panic has given it back.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other(
                "a panic has given the terminal back to the user",
            ));
        }
        self.screen.draw(render).map(drop)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Returns the size of standard output; 80 x 24 if it does not say.
fn area() -> Rect {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let (columns, rows) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let or_default = |length, default| if length == 0 { default } else { length };
    Rect::new(0, 0, or_default(columns, 80), or_default(rows, 24))
}

/// Gives the terminal back once. Errors are not reported: there is no terminal to report them on.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Gives the terminal back before the message of a panic is printed, which the alternate screen would swallow.
fn give_back_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        give_back();
        print(info);
    }));
}
