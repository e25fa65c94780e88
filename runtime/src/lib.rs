//! What every controller needs around a pipeline of phases.
