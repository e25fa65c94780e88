//! Arguments with the precedence of Flux's programs: flag, environment, default. The last of equal flags counts, and an empty
//! variable is ignored.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, ArgMatches, Command, Parser};

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

#[cfg(test)]
mod tests {
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
}
