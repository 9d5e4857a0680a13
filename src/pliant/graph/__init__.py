"""Graph level: functions of flat bindings over tensors with symbolic shapes."""
