//! `namespace()`, which cannot be looked into from outside.
//!
//! A namespace may hold itself. minijinja's own then overflows the stack when it is printed or
//! compared, and is never freed. These are printed as a word, equal only to themselves, and
//! emptied when the render ends.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use minijinja::value::{DynObject, Kwargs, Object, ObjectRepr, Value};
use minijinja::{Environment, Error, ErrorKind};

/// The function that assigns to an attribute: no template's own name.
pub(super) const SET_ATTRIBUTE: &str = "__prefill_set_attribute";

thread_local! {
    /// The namespaces of the render that this thread makes.
    static MADE: RefCell<Vec<Weak<Namespace>>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_function("namespace", |from: Option<Value>, attributes: Kwargs| {
        let namespace = Arc::new(Namespace::default());
        if let Some(from) = from {
            for key in from.try_iter()? {
                namespace.set(&key.to_string(), from.get_item(&key)?)?;
            }
        }
        for name in attributes.args() {
            namespace.set(name, attributes.get(name)?)?;
        }
        MADE.with_borrow_mut(|made| made.push(Arc::downgrade(&namespace)));
        Ok::<_, Error>(Value::from_dyn_object(namespace))
    });
    environment.add_function(SET_ATTRIBUTE, |object: &Value, name: &str, value: Value| {
        let namespace = object.downcast_object_ref::<Namespace>();
        let namespace = namespace.ok_or_else(|| {
            let fact = format!("can only assign to namespaces, not {}", object.kind());
            Error::new(ErrorKind::InvalidOperation, fact)
        })?;
        namespace.set(name, value)
    });
}

/// Empties the namespaces of this thread when the guard is dropped, so that those which hold
/// themselves are freed.
pub(super) fn guard() -> impl Drop {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            for namespace in MADE.take().iter().filter_map(Weak::upgrade) {
                drop(namespace.take());
            }
        }
    }
    Guard
}

#[derive(Debug, Default)]
struct Namespace(Mutex<BTreeMap<Arc<str>, Value>>);

impl Namespace {
    /// transformers refuses names that begin with an underscore.
    fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        if name.starts_with('_') {
            let fact = format!("a namespace holds no attribute {name:?}: it begins with \"_\"");
            return Err(Error::new(ErrorKind::InvalidOperation, fact));
        }
        let before = {
            let mut attributes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            attributes.insert(name.into(), value)
        };
        // Dropped only now: it may hold this namespace.
        drop(before);
        Ok(())
    }

    fn take(&self) -> BTreeMap<Arc<str>, Value> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let attributes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attributes.get(key.as_str()?).cloned()
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        Some(Arc::as_ptr(self).cmp(&std::ptr::from_ref(other)))
    }

    fn render(self: &Arc<Self>, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<Namespace>")
    }
}
