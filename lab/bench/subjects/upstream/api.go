package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxURLs bounds the memory of what was asked for; the experiment uses a few
// hundred.
const maxURLs = 100_000

// failure is the body of a 500: as long as an answer, so that only the status
// or a look into it tells them apart.
const failure = `{"error":"the database did not answer!"}`

// apiMain is the slow API of the experiment api-cache: one worker that takes -delay for
// each request to /comments/count?url=URL, one after the other, and answers 40 bytes of
// JSON that depend on the URL alone, so that a wrong answer shows. A share of answers,
// -errors, is a 500 of the same length; which ones follows from -seed, the URL and how
// often it was asked for, and so is the same for every cache in front.
//
// GET /__count answers how many requests came; GET /__set?delay=0s&version=1 changes
// the delay and the version of all answers while it runs.
func apiMain(args []string) error {
	flags := flag.NewFlagSet("upstream api", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "the TCP `address`")
	delay := flags.Duration("delay", 104*time.Millisecond, "of each answer")
	share := flags.Float64("errors", 0, "share of answers that are errors, 0 to 1")
	seed := flags.Uint64("seed", 1, "chooses which answers are errors")
	_ = flags.Parse(args) // it exits
	return http.ListenAndServe(*listen, newAPI(*delay, *share, *seed))
}

// An api is the API and its one worker.
type api struct {
	*http.ServeMux
	share  float64
	seed   uint64
	worker chan struct{} // one place: whoever holds it is being served

	mu      sync.Mutex // guards what follows
	delay   time.Duration
	version int
	asked   map[string]uint64 // by URL, at most maxURLs
	count   count
}

// count is what /__count answers.
type count struct {
	Requests uint64 `json:"requests"` // that came in
	Errors   uint64 `json:"errors"`   // that were answered with 500
	Gone     uint64 `json:"gone"`     // whose client left before its turn
}

func newAPI(delay time.Duration, share float64, seed uint64) *api {
	u := &api{
		ServeMux: http.NewServeMux(), share: share, seed: seed, delay: delay,
		worker: make(chan struct{}, 1), asked: map[string]uint64{},
	}
	u.HandleFunc("GET /comments/count", u.comments)
	u.HandleFunc("GET /__count", u.counts)
	u.HandleFunc("GET /__set", u.set)
	return u
}

// comments waits for its turn, works for the delay, and answers.
func (u *api) comments(w http.ResponseWriter, r *http.Request) {
	url := r.URL.Query().Get("url")
	nth, ok := u.ask(url)
	if url == "" || !ok {
		http.Error(w, `{"error":"no url, or more urls than this server keeps"}`, http.StatusBadRequest)
		return
	}
	select {
	case u.worker <- struct{}{}:
	case <-r.Context().Done():
		u.mu.Lock()
		u.count.Gone++
		u.mu.Unlock()
		return
	}
	u.mu.Lock()
	delay, version := u.delay, u.version
	u.mu.Unlock()
	time.Sleep(delay)
	<-u.worker
	status, body := http.StatusOK, answer(url, version)
	if fails(u.seed, u.share, url, nth) {
		u.mu.Lock()
		u.count.Errors++
		u.mu.Unlock()
		status, body = http.StatusInternalServerError, failure
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// ask counts a request and says how often this URL was asked for before. It is
// not ok when that cannot be kept.
func (u *api) ask(url string) (nth uint64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count.Requests++
	nth, known := u.asked[url]
	if !known && len(u.asked) >= maxURLs {
		return 0, false
	}
	u.asked[url] = nth + 1
	return nth, true
}

func (u *api) counts(w http.ResponseWriter, _ *http.Request) {
	u.mu.Lock()
	c := u.count
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(c)
}

// set changes what its query names, or nothing when any of it is wrong.
func (u *api) set(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delay, version := u.delay, u.version
	var err error
	query := r.URL.Query()
	if s := query.Get("delay"); s != "" {
		delay, err = time.ParseDuration(s)
	}
	if s := query.Get("version"); s != "" && err == nil {
		version, err = strconv.Atoi(s)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	u.delay, u.version = delay, version
}

// answer is the right body for a URL: always 40 bytes. The experiment computes
// the same on its own.
func answer(url string, version int) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s#%d", url, version)
	key := h.Sum64()
	return fmt.Sprintf(`{"count":%d,"key":"%016x"}`, 10_000+key%90_000, key)
}

// fails decides whether the nth answer for a URL is an error.
func fails(seed uint64, share float64, url string, nth uint64) bool {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %d %s", seed, nth, url)
	x := h.Sum64()
	// The finalizer of SplitMix64 spreads FNV's weak upper bits.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11)/(1<<53) < share
}
