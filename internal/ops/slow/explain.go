package slow

import (
	"cmp"
	"time"

	follow "millrace/internal/observe/trace"
)

// Mostly is what a request spent the most of its time with: the step with the longest
// time of its own, without that of the steps that are part of it. ok is false where the
// longest is what no step accounts for.
func (e *Entry) Mostly() (step follow.Step, own time.Duration, ok bool) {
	rest := e.Took
	for i := range e.Steps {
		if e.Steps[i].Parent < 0 {
			rest -= e.lasted(i)
		}
	}
	at := -1
	for i := range e.Steps {
		if mine := e.Own(i); mine > own {
			own, at = mine, i
		}
	}
	if at < 0 || rest > own {
		return step, max(rest, 0), false
	}
	return e.Steps[at], own, true
}

// lasted is how long a step took; one that had not ended lasted until the end.
func (e *Entry) lasted(i int) time.Duration {
	if s := &e.Steps[i]; s.Took >= 0 {
		return s.Took
	}
	return max(e.Took-e.Steps[i].Began, 0)
}

// Own is what a step took without the steps that are part of it.
func (e *Entry) Own(i int) time.Duration {
	own := e.lasted(i)
	for k := range e.Steps {
		if e.Steps[k].Parent == i {
			own -= e.lasted(k)
		}
	}
	return max(own, 0)
}

// Depth is of how many steps a step is part.
func (e *Entry) Depth(i int) (depth int) {
	for p := e.Steps[i].Parent; p >= 0 && p < len(e.Steps) && depth < len(e.Steps); p = e.Steps[p].Parent {
		depth++
	}
	return depth
}

// About says what a step's kind means, in a few words.
func About(k follow.Kind) string {
	return cmp.Or(map[follow.Kind]string{
		follow.Upload:   "taking in the request's body",
		follow.Lookup:   "asking a store of the cache",
		follow.Fetch:    "waiting for the cache's fetch",
		follow.Upstream: "getting another server's answer",
		follow.Queue:    "waiting for a place at another server",
		follow.Connect:  "connecting to another server",
		follow.Attempt:  "waiting for another server's answer",
		follow.Convert:  "waiting for an image's conversion",
		follow.Disk:     "looking up and opening a file",
		follow.Write:    "sending the answer to the client",
	}[k], "something else")
}
