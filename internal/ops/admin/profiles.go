package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// The profiles of the Go runtime, under the paths and with the parameters of
// net/http/pprof: "go tool pprof" and "go tool trace" read them. Importing that
// package registers them with [http.DefaultServeMux], which programs that contain
// this module serve to the public.

const (
	// maxProfile is the longest profile or trace that may be asked for.
	maxProfile = 5 * time.Minute

	profilesPath = "/debug/pprof/"
	// maxSymbols bounds a list of addresses, in bytes: some thousands of them.
	maxSymbols = 1 << 20
)

// profiles mounts them. taken gets each CPU profile.
func profiles(mux *http.ServeMux, taken func([]byte)) {
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET " + profilesPath + "{$}":     profilesPage,
		"GET " + profilesPath + "{name}":  timed(namedProfile),
		"GET " + profilesPath + "cmdline": cmdline,
		"GET " + profilesPath + "profile": timed(kept(cpuProfile, taken)),
		"GET " + profilesPath + "symbol":  symbols,
		"POST " + profilesPath + "symbol": symbols,
		"GET " + profilesPath + "trace":   timed(execution),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			handler(w, r)
		})
	}
}

// profilesPage lists what there is, with links.
func profilesPage(w http.ResponseWriter, _ *http.Request) {
	var page strings.Builder
	page.WriteString("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Profiles</title>\n<h1>Profiles</h1>\n<ul>\n")
	for _, p := range pprof.Profiles() { // in the order of their names
		name := html.EscapeString(p.Name())
		fmt.Fprintf(&page, "<li><a href=\"%s?debug=1\">%s</a> (%d): %s\n", name, name, p.Count(), about(p.Name()))
	}
	for _, name := range []string{"cmdline", "profile", "symbol", "trace"} {
		fmt.Fprintf(&page, "<li><a href=\"%s\">%s</a>: %s\n", name, name, about(name))
	}
	page.WriteString("</ul>\n<p><a href=\"goroutine?debug=2\">All goroutines with their stacks</a></p>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, page.String()) // the client has gone
}

func about(name string) string {
	return cmp.Or(map[string]string{
		"allocs":       "all allocations since the start, a sample",
		"block":        "where goroutines waited for each other",
		"goroutine":    "the stacks of all goroutines; debug=2: as a panic prints them",
		"heap":         "what is allocated, a sample; gc=1: after a collection",
		"mutex":        "who held locks that others waited for",
		"threadcreate": "what made threads",
		"cmdline":      "the command line of this program",
		"profile":      "where CPU time goes, for \"go tool pprof\"; seconds=N, else 30",
		"symbol":       "the functions at addresses",
		"trace":        "everything that the runtime does, for \"go tool trace\"; seconds=N, else 1",
	}[name], "a profile of the runtime")
}

// cmdline answers with the arguments of this process, a NUL between two.
func cmdline(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, strings.Join(os.Args, "\x00"))
}

// cpuProfile profiles for as many seconds as are asked for.
func cpuProfile(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.FormValue("seconds"))
	if err != nil || seconds <= 0 {
		seconds = 30
	}
	recorded(w, r, "profile", time.Duration(seconds)*time.Second, pprof.StartCPUProfile, pprof.StopCPUProfile)
}

// execution traces for as many seconds as are asked for.
func execution(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil || !(seconds > 0) {
		seconds = 1
	}
	recorded(w, r, "trace", time.Duration(seconds*float64(time.Second)), trace.Start, trace.Stop)
}

// recorded sends what is recorded from start to stop.
func recorded(w http.ResponseWriter, r *http.Request, name string, took time.Duration, start func(io.Writer) error, stop func()) {
	attach(w, name)
	if err := start(w); err != nil { // nothing was written
		refuse(w, http.StatusInternalServerError, fmt.Sprintf("Could not start the %s: %v\n", name, err))
		return
	}
	defer stop()
	_ = pause(r.Context(), took) // what was recorded until the client left
}

// namedProfile sends one of the runtime's profiles, or what it grew by in some seconds.
func namedProfile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	p := pprof.Lookup(name)
	if p == nil {
		refuse(w, http.StatusNotFound, "There is no profile of that name.\n")
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	if seconds := r.FormValue("seconds"); seconds != "" {
		n, err := strconv.Atoi(seconds)
		switch {
		case err != nil || n <= 0:
			refuse(w, http.StatusBadRequest, "seconds is a positive number.\n")
		case debug != 0:
			refuse(w, http.StatusBadRequest, "seconds and debug do not go together.\n")
		default:
			sendGrowth(w, r, p, time.Duration(n)*time.Second)
		}
		return
	}
	if gc, _ := strconv.Atoi(r.FormValue("gc")); name == "heap" && gc > 0 {
		runtime.GC()
	}
	if debug != 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		attach(w, name)
	}
	_ = p.WriteTo(w, debug) // the client has gone
}

// sendGrowth sends a profile less what it was before.
func sendGrowth(w http.ResponseWriter, r *http.Request, p *pprof.Profile, took time.Duration) {
	before, err := parsed(p)
	if err == nil {
		err = pause(r.Context(), took)
	}
	var grown *profile.Profile
	if err == nil {
		grown, err = growth(before, p)
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, fmt.Sprintf("Could not take the profile: %v\n", err))
		return
	}
	attach(w, p.Name()+"-delta")
	_ = grown.Write(w) // the client has gone
}

// growth is what a profile has more than before.
func growth(before *profile.Profile, p *pprof.Profile) (*profile.Profile, error) {
	after, err := parsed(p)
	if err != nil {
		return nil, err
	}
	before.Scale(-1)
	grown, err := profile.Merge([]*profile.Profile{before, after})
	if err != nil {
		return nil, fmt.Errorf("comparing two profiles: %w", err)
	}
	grown.TimeNanos = after.TimeNanos
	grown.DurationNanos = after.TimeNanos - before.TimeNanos
	return grown, nil
}

func parsed(p *pprof.Profile) (*profile.Profile, error) {
	var written bytes.Buffer
	if err := p.WriteTo(&written, 0); err != nil {
		return nil, fmt.Errorf("writing the profile: %w", err)
	}
	now := time.Now().UnixNano()
	read, err := profile.Parse(&written)
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	read.TimeNanos = now
	return read, nil
}

// symbols names the functions at addresses, which stand with + between them in the
// query of a GET and the body of a POST.
func symbols(w http.ResponseWriter, r *http.Request) {
	addresses := r.URL.RawQuery
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSymbols))
		if err != nil {
			refuse(w, http.StatusBadRequest, "The addresses could not be read.\n")
			return
		}
		addresses = string(body)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := bufio.NewWriter(w)
	_, _ = out.WriteString("num_symbols: 1\n") // more than none: there are symbols
	for address := range strings.SplitSeq(addresses, "+") {
		pc, err := strconv.ParseUint(address, 0, 64)
		if f := runtime.FuncForPC(uintptr(pc)); err == nil && f != nil {
			_, _ = fmt.Fprintf(out, "%#x %s\n", pc, f.Name())
		}
	}
	_ = out.Flush() // the client has gone
}

// attach has a browser keep an answer as a file.
func attach(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
}

// refuse tells "go tool pprof" what is wrong, which shows it by this header.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Del("Content-Disposition")
	w.Header().Set("X-Go-Pprof", "1")
	text(w, status, why)
}

// pause waits, or until the client has left.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.New("the client has left")
	}
}

// maxKept bounds a profile that is kept while it is sent.
const maxKept = 8 << 20

// kept has taken get what a profile's handler sends, if it is all of it.
func kept(profile http.HandlerFunc, taken func([]byte)) http.HandlerFunc {
	if taken == nil {
		return profile
	}
	return func(w http.ResponseWriter, r *http.Request) {
		k := &keeper{ResponseWriter: w}
		profile(k, r)
		if !k.spoilt && r.Context().Err() == nil {
			taken(k.sent)
		}
	}
}

// keeper remembers what is sent through it.
type keeper struct {
	http.ResponseWriter
	sent   []byte
	spoilt bool // too much, or not an answer with 200
}

// WriteHeader implements [http.ResponseWriter].
func (k *keeper) WriteHeader(status int) {
	k.spoilt = k.spoilt || status != http.StatusOK
	k.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (k *keeper) Write(b []byte) (int, error) {
	if len(k.sent)+len(b) > maxKept {
		k.spoilt, k.sent = true, nil
	}
	if !k.spoilt {
		k.sent = append(k.sent, b...)
	}
	return k.ResponseWriter.Write(b) //nolint:wrapcheck // nothing but a tee
}

// Unwrap is for [http.ResponseController].
func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// timed gives a profile the time that its query asks for.
func timed(profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// The same reading as pprof's: what it does not understand, it
		// replaces by a default of at most 30 s.
		seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
		if err != nil || !(seconds > 0) {
			seconds = 30
		}
		if seconds > maxProfile.Seconds() {
			text(w, http.StatusBadRequest, fmt.Sprintf("A profile may take at most %v.\n", maxProfile))
			return
		}
		took := time.Duration(seconds * float64(time.Second))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(took + writeTimeout))
		profile(w, r)
	}
}
