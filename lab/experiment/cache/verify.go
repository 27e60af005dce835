package cache

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"millrace/lab/experiment"
)

// pageURL is the i-th of the URLs that are asked about.
func pageURL(i int) string { return fmt.Sprintf("/posts/%03d/", i) }

// pageTarget is the request's target for it. nginx's key is the raw target, so
// both clients write it the same way.
func pageTarget(i int) string { return targetOf(pageURL(i)) }

func targetOf(page string) string { return "/comments/count?url=" + url.QueryEscape(page) }

func pageTargets() []string {
	paths := make([]string, urlCount)
	for i := range paths {
		paths[i] = pageTarget(i)
	}
	return paths
}

// rightAnswer is what the API answers for a URL: 40 bytes that differ for each.
// lab/bench/subjects/upstream computes the same.
func rightAnswer(page string, version int) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s#%d", page, version) // never fails
	key := h.Sum64()
	return fmt.Sprintf(`{"count":%d,"key":"%016x"}`, 10_000+key%90_000, key)
}

// A grade is what an answer is worth to the client who asked.
type grade int

const (
	gradeNone   grade = iota // no answer at all
	gradeFailed              // a status that says so
	gradeWrong               // 200, and not what was asked for
	gradeRight
)

// gradeAnswer holds an answer against the right one. Space around the body is
// no fault.
func gradeAnswer(status int, body []byte, want string) grade {
	switch {
	case status != http.StatusOK:
		return gradeFailed
	case string(bytes.TrimSpace(body)) != want:
		return gradeWrong
	}
	return gradeRight
}

// grades counts answers by their worth.
type grades struct {
	right, wrong, failed, none int
	first                      string // the first wrong one, in words
}

func (c *grades) add(g grade, page string, body []byte) {
	switch g {
	case gradeRight:
		c.right++
	case gradeWrong:
		c.wrong++
		if c.first == "" {
			c.first = fmt.Sprintf("for %s came 200 and %.60q", page, body)
		}
	case gradeFailed:
		c.failed++
	default:
		c.none++
	}
}

// checked is how many answers came.
func (c *grades) checked() int { return c.right + c.wrong + c.failed }

// A checker asks one instance and looks at bodies. It keeps one connection,
// so that a service with several workers answers from the same one, unless it
// was made to change them.
type checker struct {
	http *http.Client
	in   *service
}

// maxBody is more than any answer has that could be right.
const maxBody = 64 << 10

// newChecker makes a client. Call close when done.
func newChecker(in *service, keep bool) *checker {
	return &checker{in: in, http: &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{DisableKeepAlives: !keep, Proxy: nil, DisableCompression: true},
	}}
}

func (c *checker) close() { c.http.CloseIdleConnections() }

// get asks for a URL of the instance or of its API.
func (c *checker) get(ctx context.Context, target string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxBody))
	return answer.StatusCode, body, err
}

// ask asks about a page and grades the answer.
func (c *checker) ask(ctx context.Context, page string, version int) (g grade, status int, body []byte) {
	status, body, err := c.get(ctx, c.in.url+targetOf(page))
	if err != nil {
		return gradeNone, 0, nil
	}
	return gradeAnswer(status, body, rightAnswer(page, version)), status, body
}

// upstreamCount is what the API counted.
type upstreamCount struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

// parseCount reads the answer of /__count.
func parseCount(text []byte) (n upstreamCount, err error) {
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("reading the API's count: %w", err)
	}
	if n.Errors > n.Requests {
		return n, fmt.Errorf("reading the API's count: %d errors of %d requests", n.Errors, n.Requests)
	}
	return n, nil
}

// count asks the API how often it was asked.
func (c *checker) count(ctx context.Context) (upstreamCount, error) {
	status, body, err := c.get(ctx, c.in.upstream+"/__count")
	if err != nil {
		return upstreamCount{}, fmt.Errorf("asking the API for its count: %w", err)
	}
	if status != http.StatusOK {
		return upstreamCount{}, fmt.Errorf("asking the API for its count: status %d", status)
	}
	return parseCount(body)
}

// set changes the API while it runs: "delay=0s".
func (c *checker) set(ctx context.Context, query string) error {
	status, _, err := c.get(ctx, c.in.upstream+"/__set?"+query)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return fmt.Errorf("setting %s in the API: %w", query, err)
	}
	return nil
}

// checkPause is how long the client beside the load rests between two
// questions: it shall see what clients get, not be the load.
const checkPause = 10 * time.Millisecond

// beside asks random pages until ctx ends. It is called in a goroutine of its
// own, and the caller waits for it.
func (c *checker) beside(ctx context.Context, random *rand.Rand) (checks grades) {
	pause := time.NewTicker(checkPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return checks
		case <-pause.C:
		}
		page := pageURL(random.IntN(urlCount))
		g, _, body := c.ask(ctx, page, 0)
		if g == gradeNone && ctx.Err() != nil {
			return checks // cut off by us, not lost
		}
		checks.add(g, page, body)
	}
}

// sweep asks every page once from several connections.
func (c *checker) sweep(ctx context.Context) grades {
	const hands = 8
	var all grades
	var mu sync.Mutex                                        // guards all
	_ = experiment.Each(urlCount, hands, func(i int) error { // it reports none
		g, _, body := c.ask(ctx, pageURL(i), 0)
		mu.Lock()
		defer mu.Unlock()
		all.add(g, pageURL(i), body)
		return nil
	})
	return all
}

// pages asks for every page once over the client's one connection.
func (c *checker) pages(ctx context.Context) (checks grades) {
	for i := range urlCount {
		if ctx.Err() != nil {
			break
		}
		g, _, body := c.ask(ctx, pageURL(i), 0)
		checks.add(g, pageURL(i), body)
	}
	return checks
}

// merge adds other checks.
func (c *grades) merge(o grades) {
	c.right += o.right
	c.wrong += o.wrong
	c.failed += o.failed
	c.none += o.none
	c.first = cmp.Or(c.first, o.first)
}
