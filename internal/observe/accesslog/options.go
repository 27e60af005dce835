package accesslog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"millrace/internal/observe/logfile"
)

// Options of the access log. The zero value is off.
type Options struct {
	// Format is one of
	//
	//   - "combined": Combined Log Format, as Apache and nginx write it:
	//     remote - - [02/Jan/2006:15:04:05 -0700] "METHOD target PROTO" status bytes "referer" "user agent"
	//   - "common": the same without referer and user agent (NCSA Common Log Format)
	//   - "json": one object per line with the members time (RFC 3339, with
	//     milliseconds), remote, host, method, target, proto, status, bytes,
	//     duration_us, referer, user_agent and lane ("fast",
	//     "through" or "slow"), or those that fields names
	//   - "off" or empty: no log
	//
	// In combined and common an empty field is "-", no bytes are 0 (as in
	// nginx; Apache writes "-"), and every quote, backslash, control byte and
	// byte beyond ASCII is written as \xHH, within the request line also a
	// space: a line may be cut at its quotes and spaces without surprises.
	// In json, bytes that are not UTF-8 become U+FFFD and control characters
	// are escaped. What is too long ends in "…". Tokens, passwords and the like
	// in the query of target and referer are written as "...".
	//
	// With json the server's own messages on the standard error are JSON
	// objects as well, one to a line.
	Format string `yaml:"format"`
	// File is appended to and made with mode 0640. Empty or "-" is the
	// standard output. A named pipe is fine, whether or not somebody reads
	// it: what it cannot take is lost, and counted.
	File string `yaml:"file"`
	// Rotate begins a new file from time to time, compresses old ones, and removes the
	// oldest.
	Rotate logfile.Options `yaml:"rotate"`
	// To sends the lines to a daemon instead of a file: journald, syslog (this machine's, at
	// /dev/log), unix:/path, udp://host:514 or tcp://host:601, the latter all
	// as syslog (RFC 5424). "?facility=local3" behind it chooses syslog's facility.
	To string `yaml:"to"`
	// Messages sends the server's own messages (its error log) to such a daemon, instead of the
	// standard error. What it does not take goes there all the same.
	Messages string `yaml:"messages"`
	// Fields are the members of a line of json, in their order: time, remote, host,
	// method, target, or path (which is the target without its query), proto, scheme, status, bytes, duration_us,
	// referer, user_agent, request_id, lane.
	Fields []string `yaml:"fields"`
	// Sample is the share of requests that is logged, from 0 to 1. Errors (a status of 400 or
	// more) and slow requests are logged in any case. Default 1.
	Sample *float64 `yaml:"sample"`
	// Slow is how long a request takes that is logged in any case. Default 1s.
	Slow time.Duration `yaml:"slow"`
}

// UnmarshalText lets a config say "log: json", and "log: off".
func (o *Options) UnmarshalText(text []byte) error {
	o.Format = string(text)
	return nil
}

// UnmarshalJSON reads what encoding/json has written, as of the plan of a packed site:
// with UnmarshalText alone it would take a text for all of it.
func (o *Options) UnmarshalJSON(b []byte) error {
	type plain Options                    // without these methods
	return json.Unmarshal(b, (*plain)(o)) //nolint:wrapcheck // it is encoding/json that asks
}

const defaultSlow = time.Second

// Check returns what is wrong with the options, by the key it is wrong with. Format
// and file are the caller's to check.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	file := o.File != "" && o.File != "-"
	if o.Rotate.On() && !file {
		faults["rotate"] = errors.New("only a file is rotated: name it with log.file")
	}
	for key, target := range map[string]string{"to": o.To, "messages": o.Messages} {
		if target == "" {
			continue
		}
		if _, err := logfile.ParseTarget(target); err != nil {
			faults[key] = err
		}
	}
	if o.To != "" && file {
		faults["to"] = errors.New("the lines go to a file (log.file) or to a daemon: leave out one of them")
	}
	if _, err := parseFields(o.Fields); err != nil {
		faults["fields"] = err
	} else if len(o.Fields) > 0 && o.Format != "json" {
		faults["fields"] = errors.New("only json has fields to choose: write format: json")
	}
	if s := o.Sample; s != nil && (math.IsNaN(*s) || *s < 0 || *s > 1) {
		faults["sample"] = fmt.Errorf("%v is no share: write a number from 0 to 1, like 0.1 for one request of ten", *s)
	}
	if o.Slow < 0 {
		faults["slow"] = errors.New("it must be longer than nothing, like 1s")
	}
	return faults
}

// target opens what the lines are written to.
func (o Options) target(fail func(error)) (io.WriteCloser, error) {
	switch {
	case o.To != "":
		t, err := logfile.ParseTarget(o.To)
		if err != nil {
			return nil, fmt.Errorf("log.to: %w", err)
		}
		return logfile.NewSocket(t, "millrace"), nil
	case o.File == "" || o.File == "-":
		f, err := standardOutput()
		if err != nil {
			return nil, fmt.Errorf("opening the standard output for the access log: %w", err)
		}
		return f, nil
	}
	f, err := logfile.Open(o.File, o.Rotate, fail)
	if err != nil {
		return nil, fmt.Errorf("the access log: %w", err)
	}
	return f, nil
}

// reopens reports whether Reopen has anything to do.
func (o Options) reopens() bool { return o.To != "" || o.File != "" && o.File != "-" }

// A sample says which requests have a line. The zero value: all.
type sample struct {
	some  bool
	below uint64        // of the hash of the time at which a request came
	slow  time.Duration // how long one takes that has a line in any case
}

func newSample(o Options) (s sample) {
	if o.Sample == nil || *o.Sample >= 1 {
		return s
	}
	s = sample{some: true, below: uint64(*o.Sample * math.MaxUint64), slow: o.Slow}
	s.slow = cmp.Or(s.slow, defaultSlow)
	return s
}

// takes reports whether a request has a line.
func (s *sample) takes(began time.Time, status int, took time.Duration) bool {
	return !s.some || status >= firstError || took >= s.slow || spread(began) < s.below
}

// firstError is the least status of an error.
const firstError = 400

// spread makes a time a number that is equally likely to be anything: no counter is
// shared between processors.
func spread(t time.Time) uint64 { return uint64(t.UnixNano()) * 0x9e3779b97f4a7c15 }
