package lab

import (
	"testing"
	"time"

	"millrace/lab/load"
)

// The first sentence of a load names what was not asked and what failed, and nothing
// where nothing was.
func TestAnswer(t *testing.T) {
	open := load.Config{Arrival: load.Constant, Rate: 10_000, Connections: 50}
	rising := load.Config{Arrival: load.Constant, Connections: 50, Stages: []load.Stage{{Rate: 20_000, Length: 10 * time.Second}}}
	const missed = "Asked 10,000/s, got 1,690/s; 85 % were never sent, since every connection was waiting for an answer"
	for name, c := range map[string]struct {
		cfg  load.Config
		got  load.Result
		want string
	}{
		"all is well":        {open, load.Result{Took: 10 * time.Second, Requests: 99_900, Dropped: 50}, ""},
		"a rate missed":      {open, load.Result{Took: 10 * time.Second, Requests: 16_900, Dropped: 85_000}, missed},
		"in stages":          {rising, load.Result{Took: 10 * time.Second, Requests: 16_900, Dropped: 85_000}, missed},
		"in a closed loop":   {load.Config{}, load.Result{Took: time.Second, Requests: 10, Dropped: 5}, ""},
		"few failed":         {load.Config{}, load.Result{Took: time.Second, Requests: 10_000, Non2xx: 9}, ""},
		"some were not 2xx":  {load.Config{}, load.Result{Took: time.Second, Requests: 1000, Non2xx: 5}, "0.5 % of 1,000 requests failed: they had a status other than 2xx"},
		"in several ways":    {load.Config{}, load.Result{Took: time.Second, Requests: 900, Non2xx: 5, Errors: load.Errors{Timeout: 100, Connect: 7}}, "10.5 % of 1,000 requests failed"},
		"missed, and failed": {open, load.Result{Took: 10 * time.Second, Requests: 16_900, Dropped: 85_000, Errors: load.Errors{Unexpected: 16_900}}, missed + ". 100 % of 16,900 requests failed: they were not answered as expected"},
	} {
		if got := answer(c.cfg, &c.got); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
