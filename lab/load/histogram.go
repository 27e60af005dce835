package load

// Histogram is a log-linear histogram of durations.
type Histogram struct{}
