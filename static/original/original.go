// Package original is the seam between a job that has files and one that makes
// other files of them: package static or images/remote on the one side, package
// images on the other.
package original

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/field"
)

// The errors of Original and Lookup, possibly wrapped. Whoever gets one lets
// the Source answer, which says so better.
var (
	// ErrNone: the request names no file.
	ErrNone = errors.New("no such file")
	// ErrYoung: there is one, but it changed this very moment, and size and
	// date do not tell yet whether it will change again. The File that comes
	// with it has its CacheControl.
	ErrYoung = errors.New("the file has just changed")
)

// Source has originals. All methods may be called at once.
type Source interface {
	http.Handler // serves everything as it is

	// Original finds the file that a request names, without reading it. The
	// same file has the same Name, Size, Modified and Version until it changes.
	// Errors: ErrNone, or what kept it from looking.
	Original(r *http.Request) (File, error)

	// Lookup is Original by the Name of a file, without its Generation.
	Lookup(name string) (File, error)

	// ServeOriginal is ServeHTTP under other terms.
	ServeOriginal(w http.ResponseWriter, r *http.Request, t Terms)

	// Memory is what it holds contents in, for what is made of them to be held
	// in as well; nil: it holds none.
	Memory() *Memory
}

// File is an original as it is now.
type File struct {
	Name     string // below the source's root, with slashes; unique in it
	Size     int64  // bytes
	Modified time.Time
	Version  string // what tells contents apart beside size and date; may be empty
	// Generation is invalid once the file may have changed. It is taken before
	// the look at the file. That of Lookup is zero, which is always valid.
	Generation lane.Version
	// CacheControl is what the file is served with.
	CacheControl string
	// ApplyHeaders changes the header of what is sent for it, also if that was made of it;
	// nil: nothing. What it does holds as long as Generation.
	ApplyHeaders func(http.Header)
	// Open opens it. It may be another content by then: whoever reads compares
	// the size, and whether Generation is still valid afterwards.
	Open func() (io.ReadCloser, error)
}

// Terms change how an original is served.
type Terms struct {
	// Header is set in the answer, over what the source says: Vary,
	// Cache-Control, a reason.
	Header http.Header
	// VaryOn are request headers that had a say in sending the original rather
	// than something made of it (see lane.Rule), WithQuery says that the query
	// had one.
	VaryOn    []string
	WithQuery bool
	// Interim answers will soon be replaced by better ones: they are not offered
	// to the lane.
	Interim bool
	// Also is a second version that must be valid (see lane.Rule).
	Also lane.Version
}

// Shorten is a Cache-Control for an answer that is soon to be replaced by a
// better one: at most seconds old, and for nobody for whom the usual one is not.
// One with a quoted string that has no end is returned as no-store: nobody knows
// what else it says.
func Shorten(cacheControl string, seconds int) string {
	if !field.Closed(cacheControl) {
		return "no-store"
	}
	var kept []string
	for directive := range field.QuotedMembers([]string{cacheControl}) {
		name, value, _ := strings.Cut(strings.ToLower(directive), "=")
		switch name {
		case "no-store", "no-cache":
			return cacheControl // it is asked for again each time
		case "max-age", "s-maxage":
			if n, err := strconv.Atoi(value); err == nil {
				seconds = min(seconds, max(n, 0))
			}
		case "immutable", "stale-while-revalidate", "stale-if-error":
		default: // private, public …
			kept = append(kept, directive)
		}
	}
	return strings.Join(append(kept, "max-age="+strconv.Itoa(seconds)), ", ")
}
