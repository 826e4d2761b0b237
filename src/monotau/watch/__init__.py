"""Shows an agent at work: `monotau watch`, a page in the browser, and `monotau video`, the same picture as a film."""
