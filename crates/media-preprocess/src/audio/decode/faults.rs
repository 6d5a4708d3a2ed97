//! What goes wrong in code that isn't ours.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use symphonia::core::errors::Error as Fault;

use super::Format;
use crate::error::{Error, Result};

/// Runs a part of a decoder that isn't ours: a panic in it is an error.
pub(super) fn guarded<T>(format: Format, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| Error::MalformedAudio {
        format,
        message: "the decoder panicked".to_owned(),
    })
}

/// Our error for a source that can't be read.
pub(super) fn unreadable(source: io::Error) -> Error {
    Error::Read { source }
}

/// Our error for one of symphonia's.
pub(super) fn failed(format: Format, fault: &Fault) -> Error {
    match fault {
        Fault::Unsupported(what) => Error::UnsupportedAudio {
            format,
            what: (*what).to_owned(),
        },
        Fault::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::MalformedAudio {
                format,
                message: "the file ends inside its header".to_owned(),
            }
        }
        fault => Error::MalformedAudio {
            format,
            message: fault.to_string(),
        },
    }
}
