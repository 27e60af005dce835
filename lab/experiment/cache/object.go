package cache

// This file is the API behind the caches that are measured. Each request says
// itself what is asked of the API: how long it takes, how long its answer may
// be kept, its tag. The answer follows from the request, so that a wrong one
// shows.

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Object is one of the API's answers.
type Object struct {
	Path      string        // /hit
	Size      int           // of the body, in bytes, at least MinSize; 0: MinSize
	Delay     time.Duration // before anything of the answer is sent
	Stream    time.Duration // in which the body is sent, in even pieces
	Age       time.Duration // max-age in whole seconds; 0: DefaultAge
	Stale     time.Duration // stale-while-revalidate, in whole seconds
	Private   bool          // not for a shared cache
	Tag       string        // Surrogate-Key
	Versioned bool          // the body depends on the Server's version
}

const (
	// MinSize is the size of the least body: a count and a key.
	MinSize = 40
	// MaxSize bounds what a request may ask for.
	MaxSize = 1 << 20
	// DefaultAge is longer than any part of a run that relies on it.
	DefaultAge = 10 * time.Minute
	// pieces that a streamed body is sent in.
	pieces = 20
)

// Target is what is asked for to get o: a path with a query.
func (o Object) Target() string {
	q := make([]string, 0, 8)
	add := func(name, value string, given bool) {
		if given {
			q = append(q, name+"="+value)
		}
	}
	add("size", strconv.Itoa(o.Size), o.Size > 0)
	add("delay", o.Delay.String(), o.Delay > 0)
	add("stream", o.Stream.String(), o.Stream > 0)
	add("age", o.Age.String(), o.Age > 0)
	add("stale", o.Stale.String(), o.Stale > 0)
	add("private", "1", o.Private)
	add("tag", url.QueryEscape(o.Tag), o.Tag != "")
	add("versioned", "1", o.Versioned)
	if len(q) == 0 {
		return o.Path
	}
	return o.Path + "?" + strings.Join(q, "&")
}

// parse is the object of a target.
func parse(u *url.URL) (Object, error) {
	q := u.Query()
	o := Object{Path: u.Path, Private: q.Get("private") != "", Tag: q.Get("tag"), Versioned: q.Get("versioned") != ""}
	for name, to := range map[string]*time.Duration{"delay": &o.Delay, "stream": &o.Stream, "age": &o.Age, "stale": &o.Stale} {
		if text := q.Get(name); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil || d < 0 {
				return o, fmt.Errorf("%s=%s is not a time", name, text)
			}
			*to = d
		}
	}
	if text := q.Get("size"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < MinSize || n > MaxSize {
			return o, fmt.Errorf("size=%s is not between %d and %d", text, MinSize, MaxSize)
		}
		o.Size = n
	}
	return o, nil
}

// cacheControl is what caches are told about o.
func (o Object) cacheControl() string {
	if o.Private {
		return "private"
	}
	age := cmp.Or(o.Age, DefaultAge)
	text := "max-age=" + strconv.Itoa(int(age/time.Second))
	if o.Stale > 0 {
		text += ", stale-while-revalidate=" + strconv.Itoa(int(o.Stale/time.Second))
	}
	return text
}

// Body is the right body of o, JSON of exactly its size. Another target or, if
// it counts for o, another version makes another one.
func (o Object) Body(version uint64) []byte {
	key := hash(o.Target())
	if o.Versioned {
		key ^= hash(strconv.FormatUint(version, 10))
	}
	size := max(o.Size, MinSize)
	b := make([]byte, 0, size)
	b = fmt.Appendf(b, `{"count":%d,"key":"%016x"`, 10_000+key%90_000, key)
	if size < MinSize+len(`,"text":""`) {
		for len(b) < size-1 {
			b = append(b, ' ')
		}
		return append(b, '}')
	}
	b = append(b, `,"text":"`...)
	for random := key; len(b) < size-2; {
		random = random*6364136223846793005 + 1442695040888963407
		b = append(append(b, words[random>>58]...), ' ')
	}
	return append(b[:size-2], `"}`...)
}

// hash is FNV-1a with the finalizer of SplitMix64, which spreads its weak bits.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// words are what texts are made of: 64, so that a few bits choose one.
var words = [64]string{
	"river", "water", "wheel", "stone", "grain", "flour", "channel", "stream",
	"mill", "dam", "gate", "sluice", "bank", "bridge", "path", "field",
	"meadow", "barley", "wheat", "rye", "oat", "sack", "cart", "horse",
	"road", "village", "market", "baker", "bread", "oven", "fire", "smoke",
	"morning", "evening", "winter", "summer", "spring", "autumn", "rain", "snow",
	"frost", "sun", "wind", "cloud", "storm", "night", "moon", "star",
	"and", "the", "of", "in", "to", "for", "with", "from",
	"under", "over", "near", "after", "before", "between", "through", "along",
}

// Server is the API. It answers any number of requests at once.
type Server struct {
	listener net.Listener
	server   http.Server
	done     chan struct{}

	requests atomic.Uint64
	version  atomic.Uint64
	delay    atomic.Int64 // added to each object's own
}

// Start starts the API at a free loopback address. Close ends it.
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the API behind the caches: %w", err)
	}
	s := &Server{listener: l, done: make(chan struct{})}
	s.server.Handler = s
	// Ends with the listener, which Close waits for.
	go func() {
		_ = s.server.Serve(l) // says only that it was closed
		close(s.done)
	}()
	return s, nil
}

// Close ends the API and everything that it is still answering.
func (s *Server) Close() {
	_ = s.server.Close() // what is cut off was measured already
	<-s.done
}

// Address is its host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Requests is how many have come so far.
func (s *Server) Requests() uint64 { return s.requests.Load() }

// SetVersion changes the bodies of all objects that are Versioned.
func (s *Server) SetVersion(version uint64) { s.version.Store(version) }

// SetDelay adds a delay to every object's own.
func (s *Server) SetDelay(d time.Duration) { s.delay.Store(int64(d)) }

// ServeHTTP answers with the object that the request describes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	o, err := parse(r.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	version := s.version.Load() // as it is when the request comes
	if !wait(r, o.Delay+time.Duration(s.delay.Load())) {
		return
	}
	body := o.Body(version)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", o.cacheControl())
	if o.Tag != "" {
		h.Set("Surrogate-Key", o.Tag)
	}
	if o.Stream == 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		return
	}
	for i := range pieces {
		if i > 0 && !wait(r, o.Stream/pieces) {
			return
		}
		_, _ = w.Write(body[len(body)*i/pieces : len(body)*(i+1)/pieces])
		_ = http.NewResponseController(w).Flush()
	}
}

// wait waits; false: the client has gone.
func wait(r *http.Request, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}
