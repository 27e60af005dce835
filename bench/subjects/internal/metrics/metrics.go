// Package metrics reads the counters that millrace shows of itself.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// pageLimit bounds what is read of a metrics page: it has some hundred
	// lines.
	pageLimit = 4 << 20 // bytes
	// scrapeTimeout bounds one reading.
	scrapeTimeout = 5 * time.Second
)

// Counts are the counters that a benchmark compares with what it saw itself.
type Counts struct {
	Fast       uint64 `json:"fast"`        // answers of the lane
	Slow       uint64 `json:"slow"`        // answers of net/http
	Failed     uint64 `json:"failed"`      // of both, those of status 400 and above
	LogDropped uint64 `json:"log_dropped"` // lines that the access log left out
	Sendfile   uint64 `json:"sendfile"`    // body bytes sent by the kernel
	Writev     uint64 `json:"writev"`      // body bytes straight from memory
	Copied     uint64 `json:"copied"`      // body bytes through a buffer
}

// Sub is what was counted between before and c.
func (c Counts) Sub(before Counts) Counts {
	return Counts{
		c.Fast - before.Fast, c.Slow - before.Slow, c.Failed - before.Failed,
		c.LogDropped - before.LogDropped,
		c.Sendfile - before.Sendfile, c.Writev - before.Writev, c.Copied - before.Copied,
	}
}

// Scrape reads the counters from an admin socket.
func Scrape(ctx context.Context, socket string) (Counts, error) {
	client := http.Client{
		Timeout: scrapeTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", socket)
			},
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/metrics", nil)
	if err != nil {
		return Counts{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return Counts{}, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Counts{}, fmt.Errorf("reading metrics: the admin socket answers %s", resp.Status)
	}
	page, err := io.ReadAll(io.LimitReader(resp.Body, pageLimit))
	if err != nil {
		return Counts{}, fmt.Errorf("reading metrics: %w", err)
	}
	return Parse(string(page))
}

// Parse reads the counters from a page in Prometheus' text format. It is an
// error if the page counts no requests by lane: else a renamed counter would
// look like a lane that answers nothing.
func Parse(page string) (Counts, error) {
	var c Counts
	var lanes bool
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "millrace_") {
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return Counts{}, fmt.Errorf("reading the metric %q: %w", line, err)
		}
		switch s.name {
		case "millrace_requests_total":
			lanes = true
			c.addRequests(s)
		case "millrace_log_dropped_total":
			c.LogDropped += s.value
		case "millrace_sent_bytes_total":
			c.addSent(s)
		}
	}
	if !lanes {
		return Counts{}, errors.New("reading metrics: no millrace_requests_total on the page")
	}
	return c, nil
}

func (c *Counts) addRequests(s sample) {
	switch s.labels["lane"] {
	case "fast":
		c.Fast += s.value
	case "slow":
		c.Slow += s.value
	}
	if code := s.labels["code"]; code >= "4" { // "404", "5xx"
		c.Failed += s.value
	}
}

func (c *Counts) addSent(s sample) {
	switch s.labels["path"] {
	case "sendfile":
		c.Sendfile += s.value
	case "writev":
		c.Writev += s.value
	case "copied":
		c.Copied += s.value
	}
}

// sample is one line of a metrics page.
type sample struct {
	name   string
	labels map[string]string
	value  uint64
}

// parseSample reads `name{label="value",…} number`. Fractions are cut off;
// escapes within a label's value are not undone, as ours have none.
func parseSample(line string) (sample, error) {
	s := sample{labels: map[string]string{}}
	name, rest, labelled := strings.Cut(line, "{")
	if labelled {
		for !strings.HasPrefix(rest, "}") {
			label, after, ok1 := strings.Cut(rest, `="`)
			value, after, ok2 := strings.Cut(after, `"`)
			if !ok1 || !ok2 {
				return sample{}, errors.New("its labels do not end")
			}
			s.labels[label] = value
			rest = strings.TrimPrefix(after, ",")
		}
		rest = rest[1:]
	} else {
		name, rest, _ = strings.Cut(line, " ")
	}
	s.name = name
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return sample{}, errors.New("it has no value")
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return sample{}, err
	}
	if value < 0 || value >= 1<<63 || value != value {
		return sample{}, fmt.Errorf("%v is not a count", value)
	}
	s.value = uint64(value)
	return s, nil
}
