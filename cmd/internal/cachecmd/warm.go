package cachecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"millrace/cmd/internal/cli"
)

const (
	// warmTimeout is how long one answer may take. A slow API is what the
	// cache is for; what takes longer is not worth a worker.
	warmTimeout = 60 * time.Second
	// maxWorkers bounds --jobs: more at once is a load test (`millrace-lab load`).
	maxWorkers = 256
	// maxSitemaps is how many lists a sitemap index may lead to.
	maxSitemaps = 1000
	// shownFailures is how many failures are printed; the rest are counted.
	shownFailures = 10
	// maxRate is a request every hundred microseconds.
	maxRate = 10_000
	// warmEncodings are what browsers accept: theirs is the variant to have.
	warmEncodings = "gzip, deflate, br, zstd"
)

// Warm is `millrace cache warm`.
type Warm struct {
	List string   `arg:"" complete:"file" help:"A sitemap, a sitemap index, or a file with one URL per line; gzip is fine. Or the URL of one of them, or of a page. - is the standard input."`
	Jobs int      `short:"j" default:"4" placeholder:"N" help:"How many URLs to ask for at once. Default 4."`
	Rate float64  `placeholder:"R" help:"At most so many a second."`
	Head []string `name:"header" short:"H" sep:"none" placeholder:"HEADER" help:"Send this header with each request, as in 'Accept-Language: de'. May be repeated."`

	cli.Flags `embed:""`
}

// Run asks the running server for everything on the list, as visitors would.
func (c *Warm) Run(s cli.Streams) error {
	header, err := headerOf(c.Head)
	if err != nil {
		return err
	}
	switch {
	case c.Jobs < 1 || c.Jobs > maxWorkers:
		return cli.Usage(fmt.Sprintf("--jobs %d: between 1 and %d", c.Jobs, maxWorkers), "`millrace-lab load` is for measuring what a server can bear")
	case c.Rate < 0 || c.Rate > maxRate:
		return cli.Usage(fmt.Sprintf("--rate %g: more than 0, at most %d", c.Rate, maxRate), "leave it out for as fast as the server answers")
	}
	if header.Get("Accept-Encoding") == "" {
		header.Set("Accept-Encoding", warmEncodings)
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	w := &warmer{header: header, rate: c.Rate}
	if w.front, err = c.front(ctx); err != nil {
		return err
	}
	defer w.front.Close()
	w.client = &http.Client{
		Transport: w.front.Transport, Timeout: warmTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	pages, err := w.pages(ctx, c.List)
	if err != nil {
		return err
	}
	w.bar = cli.NewBar(s, len(pages), time.Now())
	w.all(ctx, pages, c.Jobs)
	w.bar.End()
	return w.conclude(ctx, s, len(pages))
}

// front is the public side of the running server.
func (c *Warm) front(ctx context.Context) (*cli.Front, error) {
	r, err := find(ctx, c.Flags, c.List)
	if err != nil {
		return nil, err
	}
	addrs, err := r.Addrs(ctx)
	if err != nil {
		return nil, err
	}
	return cli.NewFront(addrs)
}

// headerOf reads 'Name: value' lines.
func headerOf(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(line, "\r\n") {
			return nil, cli.Usage(fmt.Sprintf("--header %q is not a header", line), "write it as 'Name: value'")
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

// warmer asks for pages and counts what came of it.
type warmer struct {
	front  *cli.Front
	client *http.Client
	header http.Header
	rate   float64
	began  time.Time
	bar    *cli.Bar

	mu     sync.Mutex
	counts warmth
}

// warmth is what came of a list.
type warmth struct {
	hits    int // were in the cache already
	fetched int // came from the upstream through the cache
	unkept  int // of those: will be fetched again next time
	outside int // did not come from a cache at all
	failed  int
	bytes   int64
}

func (w warmth) done() int { return w.hits + w.fetched + w.outside + w.failed }

// pages reads the list, and the lists that it names.
func (w *warmer) pages(ctx context.Context, list string) ([]string, error) {
	if list == "-" {
		return w.follow(ctx, os.Stdin, "the standard input")
	}
	if isPage(list) {
		body, single, err := w.fetchList(ctx, list)
		if err != nil || single {
			return []string{list}, err
		}
		return w.follow(ctx, bytes.NewReader(body), list)
	}
	f, err := os.Open(list)
	if err != nil {
		return nil, cli.Failure(fmt.Errorf("reading the list: %w", err), "name a file, or an address that begins with http:// or https://")
	}
	defer f.Close()
	return w.follow(ctx, f, list)
}

// follow reads one list and all that it leads to.
func (w *warmer) follow(ctx context.Context, r io.Reader, name string) ([]string, error) {
	a, err := readAddresses(r)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(a.maps) > maxSitemaps {
		return nil, fmt.Errorf("%s names %d sitemaps, more than %d", name, len(a.maps), maxSitemaps)
	}
	pages := a.pages
	for _, m := range a.maps {
		body, single, err := w.fetchList(ctx, m)
		if err != nil {
			return nil, err
		}
		if single {
			return nil, fmt.Errorf("reading %s: %w", m, errNoList)
		}
		inner, err := readAddresses(bytes.NewReader(body)) // an index names no other index (sitemaps.org)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", m, err)
		}
		if pages = append(pages, inner.pages...); len(pages) > maxAddresses {
			return nil, fmt.Errorf("%s leads to more than %d addresses", name, maxAddresses)
		}
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("%s names no address", name)
	}
	return pages, nil
}

// fetchList gets a list from the server. single: it is a page, and no list.
func (w *warmer) fetchList(ctx context.Context, from string) (body []byte, single bool, err error) {
	resp, err := w.get(ctx, from, http.Header{})
	if err != nil {
		return nil, false, fmt.Errorf("asking for %s: %w", from, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, false, fmt.Errorf("asking for %s: the server answers %s", from, resp.Status)
	}
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxSitemap+1)); err != nil {
		return nil, false, fmt.Errorf("asking for %s: %w", from, err)
	}
	_, err = readAddresses(bytes.NewReader(body))
	return body, errors.Is(err, errNoList), nil
}

// get asks for a page, through the listener for its scheme if there is one:
// behind a server that ends TLS, https pages are asked for without it.
func (w *warmer) get(ctx context.Context, page string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.front.Site.Asked(page), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := w.client.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return resp, err
}

// all asks for every page, jobs at once.
func (w *warmer) all(ctx context.Context, pages []string, jobs int) {
	w.began = time.Now()
	next := make(chan string)
	var workers sync.WaitGroup
	for range min(jobs, len(pages)) {
		workers.Go(func() { // ends with next, which is closed below
			for page := range next {
				w.one(ctx, page)
			}
		})
	}
	var pace <-chan time.Time
	if w.rate > 0 {
		ticker := time.NewTicker(time.Duration(float64(time.Second) / w.rate))
		defer ticker.Stop()
		pace = ticker.C
	}
feed:
	for _, page := range pages {
		if pace != nil {
			select {
			case <-pace:
			case <-ctx.Done():
			}
		}
		select {
		case next <- page:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
}

// one asks for one page and counts it.
func (w *warmer) one(ctx context.Context, page string) {
	n, status, err := w.fetch(ctx, page)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.bytes += n
	switch {
	case err != nil:
		if ctx.Err() != nil {
			return // it was us who gave up
		}
		if w.counts.failed++; w.counts.failed <= shownFailures {
			w.bar.Print("%s: %v", page, err)
		}
	case !status.cached:
		w.counts.outside++
	case status.hit:
		w.counts.hits++
	default:
		w.counts.fetched++
		if !status.stored {
			w.counts.unkept++
		}
	}
	w.bar.Step(w.counts.done(), w.counts.failed)
}

func (w *warmer) fetch(ctx context.Context, page string) (int64, cacheStatus, error) {
	resp, err := w.get(ctx, page, w.header)
	if err != nil {
		return 0, cacheStatus{}, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = errors.New(resp.Status)
	}
	return n, readCacheStatus(resp.Header), err
}

// conclude prints what came of it; what failed makes the exit status 1.
func (w *warmer) conclude(ctx context.Context, s cli.Streams, pages int) error {
	c, took := w.counts, time.Since(w.began)
	_, err := fmt.Fprintf(s.Out, "%s: %d in the cache already, %d fetched, %d failed; %s in %s\n",
		cli.Count(pages, "URL"), c.hits, c.fetched, c.failed, cli.Amount(c.bytes), cli.Brief(took))
	if err != nil {
		return err
	}
	if c.unkept > 0 {
		s.Print("  %d of the fetched ones were not kept: `millrace cache explain URL` says why\n", c.unkept)
	}
	if c.outside > 0 {
		s.Print("  %d did not come from a cache of this server\n", c.outside)
	}
	switch {
	case c.failed > 0:
		return fmt.Errorf("%s of %d failed", cli.Count(c.failed, "URL"), pages)
	case ctx.Err() != nil && c.done() < pages:
		return fmt.Errorf("stopped after %d of %d", c.done(), pages)
	}
	return nil
}
