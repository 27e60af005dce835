package upstream

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	to := []string{"http://a"}
	tlsTo := []string{"https://a"}
	for name, c := range map[string]struct {
		o    Options
		want []string // key: a part of the message
	}{
		"good":           {Options{To: to}, nil},
		"all kinds":      {Options{To: []string{"http://a:1/b", "https://a", "h2c://[::1]:2", "unix:/run/a.sock", "unix:@abstract"}}, nil},
		"no address":     {Options{}, []string{"to: needs an address"}},
		"twice":          {Options{To: []string{"http://a", "http://b", "http://a"}}, []string{"to[2]: twice"}},
		"too many":       {Options{To: many(65)}, []string{"to: too many"}},
		"no scheme":      {Options{To: []string{"127.0.0.1:5000", "5000", ":5000"}}, []string{"to[0]: http://127.0.0.1:5000", "to[1]: http://127.0.0.1:5000", "to[2]: http://127.0.0.1:5000"}},
		"bad addresses":  {Options{To: []string{"ftp://a", "http://", "http://u:p@a", "http://a?b", "unix:", "http://a b"}}, []string{"to[0]: ftp", "to[1]: no host", "to[2]: Authorization", "to[3]: without ?", "to[4]: names no socket", "to[5]: not an address"}},
		"balance":        {Options{To: to, Balance: "random"}, []string{"balance: hash, least_connections, round_robin, two_choices"}},
		"hash_by":        {Options{To: to, Balance: "hash", HashBy: "header:"}, []string{"hash_by: not supported"}},
		"hash_by alone":  {Options{To: to, HashBy: "path"}, []string{"hash_by: balance: hash"}},
		"hash_by good":   {Options{To: to, Balance: "hash", HashBy: "cookie:sid"}, nil},
		"host":           {Options{To: to, Host: "a/b"}, []string{"host: not a host"}},
		"host good":      {Options{To: to, Host: "api.example.com:81"}, nil},
		"header_bytes":   {Options{To: to, HeaderBytes: 10}, []string{"header_bytes: out of range"}},
		"health":         {Options{To: to, Health: Health{Path: "healthz", Status: []string{"2xx", "ok"}}}, []string{"health.path: /healthz", "health.status[1]: not a status"}},
		"percent":        {Options{To: to, Retries: Retries{Budget: 101, Attempts: 11}, Breaker: Breaker{Failures: 200}}, []string{"retries.budget: 101", "retries.attempts: at most 10", "breaker.failures: 200"}},
		"long":           {Options{To: to, QueueTimeout: 25 * time.Hour, Breaker: Breaker{Window: time.Millisecond}}, []string{"queue_timeout: 24h", "breaker.window: 10ms"}},
		"tls for nobody": {Options{To: to, TLS: TLS{Insecure: true}}, []string{"tls: https://"}},
		"tls files":      {Options{To: tlsTo, TLS: TLS{CA: "missing.pem", Cert: "x"}}, []string{"tls.ca: missing.pem", "tls.cert: needs its key"}},
		"tls pointless":  {Options{To: tlsTo, TLS: TLS{CA: "options.go", Insecure: true}}, []string{"tls.ca: no certificate", "tls.insecure: pointless"}},
	} {
		faults := c.o.Check()
		var keys []string
		for _, want := range c.want {
			key, part, _ := strings.Cut(want, ": ")
			keys = append(keys, key)
			if err := faults[key]; err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %s: %v, want %q", name, key, err, part)
			}
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(keys)), slices.Sorted(maps.Keys(faults))); diff != "" {
			t.Errorf("%s: keys (-want +got):\n%s%v", name, diff, faults)
		}
		if p, err := New(c.o, nil); (err != nil) != (len(faults) > 0) {
			t.Errorf("%s: New: %v", name, err)
		} else if p != nil {
			p.Close()
		}
	}
}

func many(n int) (to []string) {
	for i := range n {
		to = append(to, fmt.Sprintf("http://a%d", i))
	}
	return to
}

func TestUnmarshalText(t *testing.T) {
	o := Options{Queue: 3}
	if err := o.UnmarshalText([]byte("http://127.0.0.1:5000")); err != nil || !slices.Equal(o.To, []string{"http://127.0.0.1:5000"}) || o.Queue != 0 {
		t.Errorf("%+v, %v", o, err)
	}
	if err := o.UnmarshalText([]byte("localhost:5000")); err == nil || !strings.Contains(err.Error(), `did you mean "http://localhost:5000"?`) {
		t.Errorf("error %v", err)
	}
}

// TestNegative: a negative number is the default, not an endless queue.
func TestNegative(t *testing.T) {
	o := Options{To: []string{"http://a"}, Queue: -1, Concurrency: -1, HeaderTimeout: -1}.complete()
	if o.Queue != 1024 || o.Concurrency != 1024 || o.HeaderTimeout != 60*time.Second {
		t.Errorf("%+v", o)
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{ErrUnreachable, 502},
		{ErrProtocol, 502},
		{ErrTimeout, 504},
		{ErrBusy, 503},
		{ErrUnhealthy, 503},
		{errors.New("x"), 502},
		{fmt.Errorf("x: %w", &upstreamError{ErrTimeout, "http://a", ErrProtocol}), 504},
	} {
		if got := Status(c.err); got != c.want {
			t.Errorf("Status(%v) = %d, want %d", c.err, got, c.want)
		}
	}
	err := &upstreamError{ErrUnreachable, "http://a", errors.New("refused")}
	if err.Error() != "the upstream cannot be reached: http://a: refused" {
		t.Error(err)
	}
}
