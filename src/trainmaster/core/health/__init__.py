"""Health: raw signals become evidence, evidence becomes findings, findings become one verdict per unit."""
