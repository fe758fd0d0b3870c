"""What every area of the core stands on: values, ids, time, chance, host lists, state machines, reasons."""
