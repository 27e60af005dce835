package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// apiURL is the i-th of the URLs that are asked about.
func apiURL(i int) string { return fmt.Sprintf("/posts/%03d/", i) }

// apiPath is the request's target for it. nginx's key is the raw target, so
// both clients write it the same way.
func apiPath(i int) string { return apiTarget(apiURL(i)) }

func apiTarget(page string) string { return "/comments/count?url=" + url.QueryEscape(page) }

func apiPaths() []string {
	paths := make([]string, apiURLs)
	for i := range paths {
		paths[i] = apiPath(i)
	}
	return paths
}

// rightAnswer is what the API answers for a URL: 40 bytes that differ for each.
// bench/subjects/apiupstream computes the same.
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

// apiChecks counts answers by their worth.
type apiChecks struct {
	right, wrong, failed, none int
	first                      string // the first wrong one, in words
}

func (c *apiChecks) add(g grade, page string, body []byte) {
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
func (c *apiChecks) checked() int { return c.right + c.wrong + c.failed }

// An apiClient asks one instance and looks at bodies. It keeps one connection,
// so that a service with several workers answers from the same one, unless it
// was made to change them.
type apiClient struct {
	http *http.Client
	in   *apiInstance
}

// apiMaxBody is more than any answer has that could be right.
const apiMaxBody = 64 << 10

// newAPIClient makes a client. Call close when done.
func newAPIClient(in *apiInstance, keep bool) *apiClient {
	return &apiClient{in: in, http: &http.Client{
		Timeout:   apiTimeout,
		Transport: &http.Transport{DisableKeepAlives: !keep, Proxy: nil, DisableCompression: true},
	}}
}

func (c *apiClient) close() { c.http.CloseIdleConnections() }

// get asks for a URL of the instance or of its API.
func (c *apiClient) get(ctx context.Context, target string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, apiMaxBody))
	return answer.StatusCode, body, err
}

// ask asks about a page and grades the answer.
func (c *apiClient) ask(ctx context.Context, page string, version int) (g grade, status int, body []byte) {
	status, body, err := c.get(ctx, c.in.url+apiTarget(page))
	if err != nil {
		return gradeNone, 0, nil
	}
	return gradeAnswer(status, body, rightAnswer(page, version)), status, body
}

// apiCount is what the API counted.
type apiCount struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

// parseAPICount reads the answer of /__count.
func parseAPICount(text []byte) (n apiCount, err error) {
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("reading the API's count: %w", err)
	}
	if n.Errors > n.Requests {
		return n, fmt.Errorf("reading the API's count: %d errors of %d requests", n.Errors, n.Requests)
	}
	return n, nil
}

// count asks the API how often it was asked.
func (c *apiClient) count(ctx context.Context) (apiCount, error) {
	status, body, err := c.get(ctx, c.in.upstream+"/__count")
	if err != nil {
		return apiCount{}, fmt.Errorf("asking the API for its count: %w", err)
	}
	if status != http.StatusOK {
		return apiCount{}, fmt.Errorf("asking the API for its count: status %d", status)
	}
	return parseAPICount(body)
}

// set changes the API while it runs: "delay=0s".
func (c *apiClient) set(ctx context.Context, query string) error {
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
func (c *apiClient) beside(ctx context.Context, random *rand.Rand) (checks apiChecks) {
	pause := time.NewTicker(checkPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return checks
		case <-pause.C:
		}
		page := apiURL(random.IntN(apiURLs))
		g, _, body := c.ask(ctx, page, 0)
		if g == gradeNone && ctx.Err() != nil {
			return checks // cut off by us, not lost
		}
		checks.add(g, page, body)
	}
}

// sweep asks every page once from several connections.
func (c *apiClient) sweep(ctx context.Context) apiChecks {
	const hands = 8
	var all apiChecks
	var mu sync.Mutex // guards all
	pages := make(chan int)
	var group sync.WaitGroup // of hands goroutines, which end with the pages
	for range hands {
		group.Go(func() {
			for i := range pages {
				g, _, body := c.ask(ctx, apiURL(i), 0)
				mu.Lock()
				all.add(g, apiURL(i), body)
				mu.Unlock()
			}
		})
	}
	for i := range apiURLs {
		pages <- i
	}
	close(pages)
	group.Wait()
	return all
}

// pages asks for every page once over the client's one connection.
func (c *apiClient) pages(ctx context.Context) (checks apiChecks) {
	for i := range apiURLs {
		if ctx.Err() != nil {
			break
		}
		g, _, body := c.ask(ctx, apiURL(i), 0)
		checks.add(g, apiURL(i), body)
	}
	return checks
}

// merge adds other checks.
func (c *apiChecks) merge(o apiChecks) {
	c.right += o.right
	c.wrong += o.wrong
	c.failed += o.failed
	c.none += o.none
	if c.first == "" {
		c.first = o.first
	}
}

// errTold is why a context ended that was ended on purpose.
var errTold = errors.New("the load is over")
