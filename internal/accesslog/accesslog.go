// Package accesslog writes one line per request without slowing it down.
package accesslog

import "time"

// Stub: real implementation follows with the same API.

// Options of the access log. The zero value is off.
type Options struct {
	Format string `yaml:"format"`
	File   string `yaml:"file"`
}

// Record is one request. Strings are only read during Write: the fast lane
// passes views into its read buffer.
type Record struct {
	Time                  time.Time
	Remote                string // client address without port; "-" on a UNIX socket
	Host                  string
	Method, Target, Proto string
	Referer, UserAgent    string
	Status                int
	Bytes                 int64 // body bytes sent
	Duration              time.Duration
	Fast                  bool // answered by the fast lane
}

// Log is an open access log. A nil *Log is off: its methods do nothing.
type Log struct{ _ int }

func (l *Log) Write(r *Record) {}
