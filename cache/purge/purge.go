// Package purge remembers what was purged, so that a purge costs the same
// whatever the number of stored objects: it counts up a generation, and every
// use of an object asks whether anything it belongs to was purged after it was
// fetched.
package purge

// Selector says what to purge. Exactly one of its fields is set.
type Selector struct {
	URL    string `json:"url,omitempty"`    // scheme://host/path?query: all variants
	Prefix string `json:"prefix,omitempty"` // of such a URL
	Glob   string `json:"glob,omitempty"`   // * is any run of characters, ? any one
	Tag    string `json:"tag,omitempty"`
	Host   string `json:"host,omitempty"`
	All    bool   `json:"all,omitempty"`
	// Hard removes; otherwise what is purged is stale, and may be served
	// where stale answers may be.
	Hard bool `json:"hard,omitempty"`
}

// Check says what is wrong with a selector.
func (s Selector) Check() error { panic("not built") }

// State is what became of an object.
type State uint8

// The states, from the mildest.
const (
	Valid State = iota
	Stale
	Gone
)

// Object is what purging knows of a stored response.
type Object struct {
	URL  string // scheme://host/path?query as requested, host in lower case
	Host string
	Tags []string
	At   Time // read before it was asked for upstream
}

// Time is a moment in a Book's life. It is persisted with objects: see Restore.
type Time uint64

// Book holds the purges. The zero value is not ready: use New.
type Book struct{}

// New returns an empty book, bounded to max remembered tags and URLs, and as many globs and prefixes as can be looked at at every use.
func New(max int) *Book { panic("not built") }

// Now is the moment. Take it before the request to the origin starts.
func (b *Book) Now() Time { panic("not built") }

// Purge takes effect at once: when it returns, no State call begun afterwards
// says Valid for an object fetched before. It is O(1) in the number of objects.
func (b *Book) Purge(s Selector) Time { panic("not built") }

// State says what became of an object. It is quick when nothing was purged
// since the object was last found valid: checked holds that moment, owned by the caller.
func (b *Book) State(o *Object, checked *Time) State { panic("not built") }

// Save and Restore keep the book across a restart, so that objects on disk
// that were purged stay purged.
func (b *Book) Save() []byte { panic("not built") }

// Restore loads what Save wrote; with an error the book treats everything from
// before as softly purged.
func (b *Book) Restore(saved []byte) error { panic("not built") }
