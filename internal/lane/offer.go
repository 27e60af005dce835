// Package lane is the fast lane (see the package comment in lane.go).
package lane

import (
	"net/http"
	"sync/atomic"
	"time"

	"millrace/internal/send"
)

// Generation is what several answers stand or fall with: a file's content, a
// purge tag. Void ends the life of every answer offered under it, at once,
// also of offers that were prepared before and come in later.
type Generation struct{ n atomic.Uint64 }

// Mark is a generation's state at one moment. Take it before reading what the
// answer is made of. The zero Mark never falls.
type Mark struct {
	gen *Generation
	at  uint64
}

// Now returns the current mark.
func (g *Generation) Now() Mark { return Mark{g, g.n.Load()} }

// Void makes every mark taken so far invalid.
func (g *Generation) Void() { g.n.Add(1) }

// Valid reports whether the generation is still the one the mark was taken in.
func (m Mark) Valid() bool { return m.gen == nil || m.gen.n.Load() == m.at }

// Rule says for which requests, and how long, an offered answer is right.
type Rule struct {
	// Consulted names, canonically, every request header that had a say in
	// choosing the answer. A request in which one of them differs is not
	// answered by the lane.
	Consulted []string
	// Mark must have been taken before the answer's content was read.
	Mark Mark
	// Expires ends the answer's life; zero means only Mark does.
	Expires time.Time
	// WithQuery makes the query part of the key; without it the answer
	// holds for the path whatever the query says.
	WithQuery bool
}

// Offer lets the fast lane answer the next such request itself. It does
// nothing where there is no lane (tests, HTTP/2, another program's server).
func Offer(r *http.Request, a *send.Answer, rule Rule) {}
