//! Tokens that are still good, by who they speak for; and who is getting one just now, so that many objects of one
//! identity cause one exchange.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::{SignedDuration, Timestamp};
use sluice_runtime::clock::Clock;
use sluice_runtime::schedule::ObjectKey;

use super::error::TokenError;
use super::series::Series;

/// Longest time that a token is kept, whatever the flag says.
const LONGEST: Duration = Duration::from_secs(3600);

/// How much is kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Tokens at most; none: nothing is kept.
    pub size: usize,
    /// Longest time that a token is kept. More than an hour counts as an hour.
    pub longest: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            size: 100,
            longest: LONGEST,
        }
    }
}

/// Something that ends.
pub(super) trait Mortal: Clone + Send + Sync + 'static {
    /// When, if ever.
    fn expires(&self) -> Option<Timestamp>;
}

/// An exchange that gives a `T`. It needs nothing of the pass that began it, since others may wait for it too.
pub(super) type Exchange<T> = BoxFuture<'static, Result<T, TokenError>>;

/// A token, and which renewal of it this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loan<T> {
    /// The token.
    pub(super) token: T,
    /// Differs from that of every other exchange.
    pub(super) number: u64,
}

/// Kept tokens.
pub(super) struct Cache<T: Mortal> {
    state: Mutex<State<T>>,
    settings: CacheSettings,
    clock: Arc<dyn Clock>,
    series: Series,
}

struct State<T: Mortal> {
    kept: HashMap<[u8; 32], Kept<T>>,
    flights: HashMap<[u8; 32], Flight<T>>,
    /// Counts looks and exchanges.
    count: u64,
}

struct Kept<T> {
    loan: Loan<T>,
    until: Timestamp,
    /// The count at the last look.
    used: u64,
}

/// An exchange under way. It goes on as long as somebody waits for it.
struct Flight<T: Mortal> {
    number: u64,
    result: WeakShared<Exchange<T>>,
}

impl<T: Mortal> Cache<T> {
    /// Without any token.
    pub(super) fn new(settings: CacheSettings, clock: Arc<dyn Clock>, series: Series) -> Self {
        let state = State {
            kept: HashMap::new(),
            flights: HashMap::new(),
            count: 0,
        };
        Self {
            state: Mutex::new(state),
            settings,
            clock,
            series,
        }
    }

    /// The token of `who`: kept, or from an exchange that is under way, or from a new one.
    ///
    /// # Errors
    /// The exchange failed. Failures are not kept.
    pub(super) async fn get(
        &self,
        who: [u8; 32],
        object: &ObjectKey,
        exchange: impl FnOnce() -> Exchange<T>,
    ) -> Result<Loan<T>, TokenError> {
        if self.settings.size == 0 {
            let token = exchange().await?;
            let number = self.state().next();
            return Ok(Loan { token, number });
        }
        let result = match self.look(who) {
            Found::Kept(loan) => {
                self.series.looked_up(object, true);
                Ok(loan)
            }
            Found::Flight(number, result) => {
                self.series.looked_up(object, true);
                self.land(who, number, result).await
            }
            Found::Nothing => {
                self.series.looked_up(object, false);
                let (number, result) = self.depart(who, exchange);
                self.land(who, number, result).await
            }
        };
        self.series.answered(result.is_ok());
        result
    }

    /// Forgets the token of `who`, if it is still this one.
    pub(super) fn forget(&self, who: [u8; 32], number: u64) {
        let mut state = self.state();
        if state
            .kept
            .get(&who)
            .is_some_and(|kept| kept.loan.number == number)
        {
            state.kept.remove(&who);
        }
        self.series.hold(state.kept.len());
    }

    fn look(&self, who: [u8; 32]) -> Found<T> {
        let now = self.clock.now();
        let mut state = self.state();
        let used = state.next();
        if let Some(kept) = state.kept.get_mut(&who)
            && kept.until > now
        {
            kept.used = used;
            return Found::Kept(kept.loan.clone());
        }
        let flight = state.flights.get(&who);
        match flight.and_then(|flight| Some((flight.number, flight.result.upgrade()?))) {
            Some((number, result)) => Found::Flight(number, result),
            None => Found::Nothing,
        }
    }

    fn depart(&self, who: [u8; 32], exchange: impl FnOnce() -> Exchange<T>) -> (u64, Shared<Exchange<T>>) {
        let mut state = self.state();
        // Somebody else may have departed since the look.
        if let Some(flight) = state.flights.get(&who)
            && let Some(result) = flight.result.upgrade()
        {
            return (flight.number, result);
        }
        let number = state.next();
        let result = exchange().shared();
        if let Some(weak) = result.downgrade() {
            let flight = Flight { number, result: weak };
            state.flights.insert(who, flight);
        }
        (number, result)
    }

    async fn land(
        &self,
        who: [u8; 32],
        number: u64,
        result: Shared<Exchange<T>>,
    ) -> Result<Loan<T>, TokenError> {
        let result = result.await;
        let mut state = self.state();
        // The first of those who waited keeps it for all.
        let first = state
            .flights
            .get(&who)
            .is_some_and(|flight| flight.number == number);
        if first {
            state.flights.remove(&who);
        }
        let loan = Loan {
            token: result?,
            number,
        };
        if first {
            self.keep(&mut state, who, loan.clone());
        }
        Ok(loan)
    }

    fn keep(&self, state: &mut State<T>, who: [u8; 32], loan: Loan<T>) {
        let now = self.clock.now();
        state.kept.retain(|_, kept| kept.until > now);
        let until = now
            .checked_add(self.lifetime(loan.token.expires(), now))
            .unwrap_or(now);
        if until > now {
            if state.kept.len() >= self.settings.size && !state.kept.contains_key(&who) {
                let oldest = state.kept.iter().min_by_key(|(_, kept)| kept.used);
                if let Some(oldest) = oldest.map(|(who, _)| *who) {
                    state.kept.remove(&oldest);
                    self.series.evicted();
                }
            }
            let used = state.next();
            state.kept.insert(who, Kept { loan, until, used });
        }
        self.series.hold(state.kept.len());
    }

    /// How long a token is kept: four fifths of what it has left to live, within the limits.
    fn lifetime(&self, expires: Option<Timestamp>, now: Timestamp) -> SignedDuration {
        let longest =
            SignedDuration::try_from(self.settings.longest.min(LONGEST)).unwrap_or(SignedDuration::ZERO);
        expires.map_or(longest, |expires| {
            let left = expires.duration_since(now);
            longest.min(left.saturating_mul(4) / 5)
        })
    }

    /// What is kept is valid at each moment, so a panic elsewhere does not spread.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Mortal> State<T> {
    const fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

/// What a look finds.
enum Found<T: Mortal> {
    Kept(Loan<T>),
    Flight(u64, Shared<Exchange<T>>),
    Nothing,
}
