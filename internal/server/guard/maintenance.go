package guard

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/match"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
)

// defaultRetry is when clients are told to come back.
const defaultRetry = 10 * time.Minute

// Maintenance closes all sites for a while: they answer 503. `millrace
// maintenance on` and `off` do so while the server runs.
type Maintenance struct {
	// On closes the sites from the start.
	On bool `yaml:"on"`
	// Allow are addresses and networks that are let in, as in 10.0.0.0/8.
	Allow []string `yaml:"allow"`
	// File is the page that everybody else gets, up to 1 MiB. It must need no other
	// files of the site.
	File string `yaml:"file"`
	// Text is what they get instead of a page.
	Text string `yaml:"text"`
	// RetryAfter is when they are told to come back. Default 10m.
	RetryAfter time.Duration `yaml:"retry_after"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Maintenance) Check() map[string]error {
	faults := map[string]error{}
	if _, err := netset.Parse(o.Allow); err != nil {
		faults["allow"] = err
	}
	if o.RetryAfter < 0 || o.RetryAfter > 365*24*time.Hour {
		faults["retry_after"] = errors.New("between 1s and a year")
	}
	for key, err := range o.respond().Check() {
		if key == "text" || key == "file" {
			faults[key] = err
		}
	}
	return faults
}

func (o Maintenance) respond() Respond {
	after := cmp.Or(o.RetryAfter, defaultRetry)
	return Respond{Status: http.StatusServiceUnavailable, Text: o.Text, File: o.File, RetryAfter: int(math.Ceil(after.Seconds()))}
}

// builtIn answers where the config has neither a page nor a text.
func (o Respond) builtIn() http.Handler {
	var answers [pages.Forms]*send.Answer
	for form := range answers {
		answers[form] = pages.Prepare(pages.Form(form), o.Status, "This site is being worked on.", o.RetryAfter)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answers[pages.FormOf(r.Header["Accept"])]
		lane.Offer(r, a, lane.Rule{VaryOn: []string{"Accept"}})
		send.Serve(w, r, a)
	})
}

// Compile returns which requests are turned away, and what answers them.
func (o Maintenance) Compile(in *match.Scope) (*match.Matcher, http.Handler, error) {
	var when match.When
	for _, a := range o.Allow {
		when.Address = append(when.Address, "!"+a)
	}
	m, faults := when.Compile(in)
	for _, err := range faults {
		return nil, nil, fmt.Errorf("maintenance.allow: %w", err)
	}
	answer := o.respond()
	if o.Text == "" && o.File == "" {
		return m, answer.builtIn(), nil
	}
	h, err := answer.Handler()
	if err != nil {
		return nil, nil, fmt.Errorf("maintenance.file: %w", err)
	}
	return m, h, nil
}
