package lane

import (
	"sync/atomic"

	"millrace/internal/wire/negotiate"
)

// preferences remember what [negotiate.Of] has made of the last values of Accept-Encoding. Of
// those there are few: each browser sends two, and each of them comes with every request.
type preferences [16]atomic.Pointer[knownPreference]

type knownPreference struct {
	value string
	is    negotiate.Preference
}

// longestKnown is the longest value that is remembered.
const longestKnown = 128

// of returns [negotiate.Of] of one line; an empty one stands for none.
func (k *preferences) of(value []byte) negotiate.Preference {
	if len(value) == 0 {
		return 0
	}
	at := &k[(len(value)+2*int(value[0]))%len(k)] // tells apart what browsers and crawlers send
	if p := at.Load(); p != nil && p.value == string(value) {
		return p.is
	}
	p := negotiate.Of([]string{view(value)})
	if len(value) <= longestKnown {
		at.Store(&knownPreference{string(value), p})
	}
	return p
}
