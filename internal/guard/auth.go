package guard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"millrace/internal/password"
)

// Auth lets only those in who know a password (RFC 7617). Nothing of what it
// protects is kept for others, not in the fast lane either.
type Auth struct {
	// Realm is what browsers show above the fields. Default "restricted".
	Realm string `yaml:"realm"`
	// Passwords are users and the hashes of their passwords, as `millrace
	// hash-password` prints them: bcrypt or argon2id. A dollar sign in them is
	// itself.
	Passwords map[string]string `yaml:"passwords" expand:"no"`
	// File is a file of lines name:hash, as htpasswd makes it. It is read
	// again when it changes; while it is missing or broken, nobody is let in.
	File string `yaml:"file"`
	// Off lets everybody in, below a site that asks for a password.
	Off bool `yaml:"off"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Auth) Check() map[string]error {
	faults := map[string]error{}
	if o.Off {
		if len(o.Passwords) > 0 || o.File != "" {
			faults["off"] = errors.New("off stands alone")
		}
		return faults
	}
	if strings.ContainsFunc(o.Realm, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		faults["realm"] = fmt.Errorf("%q cannot stand in a header", o.Realm)
	}
	for name, hash := range o.Passwords {
		if name == "" || strings.Contains(name, ":") {
			faults["passwords"] = fmt.Errorf("%q is not a user's name: it is empty or holds a colon", name)
		} else if err := password.Check(hash); err != nil {
			faults["passwords"] = fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(o.Passwords) == 0 && o.File == "" {
		faults["passwords"] = errors.New("nobody could come in: auth needs passwords or a file")
	}
	if o.File != "" {
		if _, _, err := readUsers(o.File); err != nil {
			faults["file"] = err
		}
	}
	return faults
}

// readUsers reads a file of users, with what tells whether it has changed.
func readUsers(file string) (users map[string]string, stamp string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // names the file
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // as above
	}
	if users, err = password.Parse(f); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	return users, stampOf(info), nil
}

func stampOf(info os.FileInfo) string {
	return fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size())
}

const (
	// remembered passwords are not hashed again for rememberFor: a page asks for
	// dozens of things at once, and a hash takes some 50 ms.
	maxRemembered = 4096
	rememberFor   = 5 * time.Minute
	// lookEvery is how often the file is looked at.
	lookEvery = time.Second
	// waitForHash is how long a request waits for its turn to be hashed.
	waitForHash = 10 * time.Second
)

// Gate is a compiled Auth.
type Gate struct {
	options   Auth
	challenge string
	errors    *slog.Logger
	key       [32]byte
	nobody    string        // a hash for names that nobody has: they must not be told by time
	turns     chan struct{} // hashes at once: all cores but one, at least one

	mu    sync.Mutex
	users map[string]string
	stamp string    // of the file
	look  time.Time // when the file was looked at
	known map[[32]byte]time.Time
}

// NewGate reads the file, if there is one.
func NewGate(o Auth, errors *slog.Logger) (*Gate, error) {
	realm := o.Realm
	if realm == "" {
		realm = "restricted"
	}
	g := &Gate{
		options: o, errors: errors, challenge: `Basic realm="` + realm + `", charset="UTF-8"`,
		turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), known: map[[32]byte]time.Time{},
	}
	_, _ = rand.Read(g.key[:]) // never fails
	g.nobody, _ = password.New(rand.Text(), password.Bcrypt)
	g.users = maps.Clone(o.Passwords)
	if o.File != "" {
		users, stamp, err := readUsers(o.File)
		if err != nil {
			return nil, err
		}
		g.take(users, stamp)
		g.look = time.Now()
	}
	for name, hash := range g.users {
		if password.Weak(hash) {
			errors.Warn("the password of a user is kept in a weak form; `millrace hash-password` makes a better one", "user", name)
		}
	}
	return g, nil
}

// take puts the users of the file in; those of the config win.
func (g *Gate) take(users map[string]string, stamp string) {
	all := maps.Clone(g.options.Passwords)
	if all == nil {
		all = map[string]string{}
	}
	for name, hash := range users {
		if _, ok := all[name]; !ok {
			all[name] = hash
		}
	}
	g.users, g.stamp = all, stamp
	clear(g.known)
}

// Wrap returns h for those who are let in. Others are told so.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, ok := r.BasicAuth()
		if ok && g.allows(r, user, pass) {
			h.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		header.Set("Www-Authenticate", g.challenge)
		header.Set("Cache-Control", "no-store")
		http.Error(w, "401 Unauthorized", http.StatusUnauthorized)
	})
}

func (g *Gate) allows(r *http.Request, user, pass string) bool {
	mac := hmac.New(sha256.New, g.key[:])
	_, _ = mac.Write([]byte(user + ":" + pass)) // a name has no colon
	var sum [32]byte
	mac.Sum(sum[:0])
	hash, known := g.find(user, sum)
	if known {
		return true
	}
	late := time.NewTimer(waitForHash)
	defer late.Stop()
	select {
	case g.turns <- struct{}{}:
	case <-r.Context().Done():
		return false
	case <-late.C:
		return false
	}
	defer func() { <-g.turns }()
	if hash == "" {
		password.Matches(g.nobody, pass)
		return false
	}
	if !password.Matches(hash, pass) {
		return false
	}
	g.remember(user, hash, sum)
	return true
}

// find returns a user's hash, and whether the password was right a moment ago.
func (g *Gate) find(user string, sum [32]byte) (hash string, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.options.File != "" && now.Sub(g.look) >= lookEvery {
		g.look = now
		g.reread()
	}
	until, ok := g.known[sum]
	return g.users[user], ok && now.Before(until)
}

// reread reads the file again if it has changed. Only the users of the config
// remain while it cannot be read.
func (g *Gate) reread() {
	info, err := os.Stat(g.options.File)
	if err == nil && stampOf(info) == g.stamp {
		return
	}
	var users map[string]string
	var stamp string
	if err == nil {
		users, stamp, err = readUsers(g.options.File)
	}
	if err != nil && g.stamp != "" {
		g.errors.Error("the file of passwords cannot be read; its users are not let in until it can", "err", err)
	}
	if err != nil && g.stamp == "" {
		return // was said
	}
	g.take(users, stamp)
}

func (g *Gate) remember(user, hash string, sum [32]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users[user] != hash {
		return // the file has changed meanwhile
	}
	if len(g.known) >= maxRemembered {
		clear(g.known)
	}
	g.known[sum] = time.Now().Add(rememberFor)
}
