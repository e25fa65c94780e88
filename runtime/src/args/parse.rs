//! Arguments with the precedence of Flux's programs: flag, environment, default. The last of equal flags counts, and an empty
//! variable is ignored. Values have the syntax of Go's flags.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Arg, ArgMatches, Command, Parser};
use sluice_api::interval::{MAX_NANOSECONDS, parse_go_duration};

/// Parses arguments, of which the first is the program, and an environment.
///
/// # Errors
/// A flag is unknown or has an invalid value, or help or the version was requested.
pub fn parse<P: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<P, clap::Error> {
    let mut matches = matches::<P>(arguments, environment)?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command::<P>()))
}

/// Returns the raw matches by flag.
///
/// # Errors
/// As [`parse`].
pub fn matches<P: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<ArgMatches, clap::Error> {
    let twins: Vec<OsString> = P::command()
        .get_arguments()
        .filter_map(|argument| environment_override(argument, &environment))
        .collect();
    let mut arguments = arguments.into_iter();
    let program = arguments.next();
    let all = program.into_iter().chain(twins).chain(arguments);
    command::<P>().try_get_matches_from_mut(all)
}

/// Returns the flag of a variable; it precedes the command line, whose flags win.
fn environment_override(argument: &Arg, environment: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let name = argument.get_env()?.to_str()?;
    let value = environment(name).filter(|value| !value.is_empty())?;
    let mut flag = OsString::from(format!("--{}=", argument.get_long()?));
    flag.push(value);
    Some(flag)
}

/// Returns the command without its variables, which the help still shows.
fn command<P: Parser>() -> Command {
    P::command().args_override_self(true).mut_args(|argument| {
        let Some(name) = argument.get_env().map(|name| name.to_string_lossy().into_owned()) else {
            return argument;
        };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        argument
            .env(Resettable::Reset)
            .help(format!("{help} [environment: {name}]"))
    })
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
///
/// # Errors
/// The text is not a boolean.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// Parses a duration in the grammar of Go's `time.ParseDuration`, e.g. `750ms`, `1h30m`, `1.5s`, `0`.
///
/// # Errors
/// The text is invalid, negative, or longer than Go's maximum of about 292 years.
pub fn duration(text: &str) -> Result<Duration, String> {
    match parse_go_duration(text) {
        Ok((false, nanoseconds @ ..=MAX_NANOSECONDS)) => Ok(Duration::from_nanos(nanoseconds)),
        _ => Err(format!("{text:?} is not a duration such as 30s, 1h30m or 750ms")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Parser, Debug)]
    struct Program {
        #[command(flatten)]
        common: crate::args::Common<2>,
        /// A list.
        #[arg(long, value_delimiter = ',')]
        gates: Vec<String>,
    }

    fn program(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Program, clap::Error> {
        let all = ["program"].iter().chain(arguments).map(OsString::from);
        let lookup = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        parse(all, lookup)
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_the_environment_over_the_default() {
        let events = |arguments: &[&str], environment: &[(&str, &str)]| {
            program(arguments, environment)
                .unwrap()
                .common
                .addresses
                .events_addr
        };
        let set = [("EVENTS_ADDR", "http://env/")];
        assert_eq!(events(&[], &[]), "");
        assert_eq!(events(&[], &set), "http://env/");
        assert_eq!(events(&["--events-addr=http://flag/"], &set), "http://flag/");
        assert_eq!(events(&["--events-addr="], &set), "");
    }

    #[test]
    fn an_empty_variable_is_ignored() {
        let address = |value| {
            let program = program(&[], &[("METRICS_ADDR", value)]).unwrap();
            program.common.addresses.metrics_addr
        };
        assert_eq!(address(""), crate::serve::ListenAddress::AllInterfaces(8080));
        assert_eq!(address(":1"), crate::serve::ListenAddress::AllInterfaces(1));
        assert!(program(&[], &[("METRICS_ADDR", "nowhere")]).is_err());
    }

    #[test]
    fn the_last_of_equal_flags_counts_and_lists_grow() {
        let patched = program(
            &[
                "--log-level=info",
                "--concurrent",
                "3",
                "--gates=a,b",
                "--log-level=debug",
                "--concurrent=20",
                "--gates=c",
            ],
            &[],
        )
        .unwrap();
        assert_eq!(patched.common.concurrency.concurrent, 20);
        assert_eq!(patched.common.logging.log_level, crate::telemetry::Level::Debug);
        assert_eq!(patched.gates, ["a", "b", "c"]);
    }

    #[test]
    fn help_names_the_variables() {
        let help = program(&["--help"], &[]).unwrap_err().to_string();
        assert!(help.contains("[environment: METRICS_ADDR]"), "{help}");
    }

    #[test]
    fn unknown_flags_are_errors() {
        for bad in ["--insecure-allow-http", "-log-level=info", "stray"] {
            let error = program(&[bad], &[]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn durations_of_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("750ms", 750),
            ("1.5s", 1500),
            (".5s", 500),
            ("1.s", 1000),
            ("1h30m", 5_400_000),
            ("+2m", 120_000),
            ("1000us", 1),
            ("1000µs", 1),
            ("2540400h", 9_145_440_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "",
            "1",
            "s",
            ".s",
            "-1s",
            "1d",
            "1.2.3s",
            "9999999999999999h",
            " 1s",
            "1s ",
            "1 s",
            "+",
            "99999999999999999999999999999999999999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,12}|[0-9.]{0,40}[hms]{0,2}[0-9.]{0,20}[a-z]{0,2}") {
            let _ = duration(&text);
        }
    }
}
