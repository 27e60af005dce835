package signin

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/internal/access/password"
	"millrace/internal/wire/message"
	"millrace/internal/wire/netset"
)

// checkPasswords reports faults of the hashes in the options.
func (o Options) checkPasswords(faults map[string]error) {
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
	if o.File != "" {
		if _, _, err := readUsers(o.File); err != nil {
			faults["file"] = err
		}
	}
}

// readUsers reads a file of users. stamp changes when the file does.
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
	// lookEvery is how often the file is checked for changes.
	lookEvery = time.Second
	// waitForHash is how long a request waits until its password is checked.
	waitForHash = 10 * time.Second
)

// passwords lets clients in by a password (RFC 7617).
type passwords struct {
	options   Options
	challenge string
	errors    *slog.Logger
	key       [32]byte
	clients   *netset.Finder
	turns     *checkQueue // hashes at once: all cores but one, at least one

	mu    sync.Mutex
	users map[string]string
	names []string  // of users, in order
	stamp string    // of the file
	look  time.Time // when the file was looked at
	known map[[32]byte]time.Time
}

// newPasswords reads the file, if there is one.
func newPasswords(o Options, clients *netset.Finder, errors *slog.Logger) (*passwords, error) {
	g := &passwords{
		options: o, errors: errors, challenge: `Basic realm="` + cmp.Or(o.Realm, "restricted") + `", charset="UTF-8"`,
		clients: clients, turns: newCheckQueue(max(1, runtime.GOMAXPROCS(0)-1)), known: map[[32]byte]time.Time{},
	}
	_, _ = rand.Read(g.key[:]) // never fails
	var users map[string]string
	stamp := ""
	if o.File != "" {
		var err error
		if users, stamp, err = readUsers(o.File); err != nil {
			return nil, err
		}
		g.look = time.Now()
	}
	g.take(users, stamp)
	for name, hash := range g.users {
		if password.Weak(hash) {
			errors.Warn("the password of a user is kept in a weak form; `millrace hash-password` makes a better one", "user", name)
		}
	}
	return g, nil
}

// take replaces the users of the file. Users of the config have precedence.
func (g *passwords) take(users map[string]string, stamp string) {
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
	g.names = slices.Sorted(maps.Keys(all))
	clear(g.known)
}

// admit implements way.
func (g *passwords) admit(r *http.Request) (visitor, *refusal) {
	user, pass, ok := r.BasicAuth()
	if !ok {
		return visitor{}, &refusal{status: http.StatusUnauthorized, challenge: g.challenge}
	}
	right, checked := g.allows(r, user, pass)
	switch {
	case right:
		return visitor{user: user}, nil
	case !checked: // 401 would have a browser forget a password that is right
		if g.turns.shouldWarn(r) {
			g.errors.Warn("more passwords come than can be checked; rate_limit holds back who guesses", "client", g.clients.Of(r).String())
		}
		return visitor{}, &refusal{status: http.StatusServiceUnavailable, fields: http.Header{"Retry-After": {"10"}}}
	}
	return visitor{}, &refusal{status: http.StatusUnauthorized, challenge: g.challenge}
}

// admitNow implements quick, for a password that was right a moment ago.
func (g *passwords) admitNow(q *message.Request) (user string, ok bool) {
	r := http.Request{Header: http.Header{"Authorization": {q.Value("Authorization")}}}
	user, pass, ok := r.BasicAuth()
	if !ok {
		return "", false
	}
	sum := g.sum(user, pass)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	until, known := g.known[sum]
	return user, known && now.Before(until) && !g.mayHaveChanged(now)
}

// sum is what stands for a user and a password in memory.
func (g *passwords) sum(user, pass string) (sum [32]byte) {
	mac := hmac.New(sha256.New, g.key[:])
	_, _ = mac.Write([]byte(user + ":" + pass)) // a name has no colon
	mac.Sum(sum[:0])
	return sum
}

// mayHaveChanged reports whether it is time to look at the file, with g.mu held.
func (g *passwords) mayHaveChanged(now time.Time) bool {
	return g.options.File != "" && now.Sub(g.look) >= lookEvery
}

// allows reports whether a password is right; checked is false where there was no time to
// check it.
func (g *passwords) allows(r *http.Request, user, pass string) (right, checked bool) {
	sum := g.sum(user, pass)
	if _, known := g.find(user, sum); known {
		return true, true
	}
	client := clientOf(g.clients.Of(r))
	ctx, cancel := context.WithTimeout(r.Context(), waitForHash)
	defer cancel()
	if !g.turns.acquire(ctx, client) {
		return false, false
	}
	defer func() { g.turns.release(client, right) }()
	hash, known := g.find(user, sum)
	if known { // another request has been quicker
		return true, true
	}
	if hash == "" {
		password.Matches(g.decoy(user), pass)
		return false, true
	}
	if right = password.Matches(hash, pass); right {
		g.remember(user, hash, sum)
	}
	return right, true
}

// decoy returns the hash that is checked for a name that no user has: that of a user, for
// each name always the same. So the time of the answer does not tell whether there is such
// a user.
func (g *passwords) decoy(user string) string {
	mac := hmac.New(sha256.New, g.key[:])
	_, _ = mac.Write([]byte(user))
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.names) == 0 {
		return "" // there is nobody to tell of
	}
	n := binary.BigEndian.Uint64(mac.Sum(nil)) % uint64(len(g.names))
	return g.users[g.names[n]]
}

// find returns a user's hash, and whether the password was right a moment ago.
func (g *passwords) find(user string, sum [32]byte) (hash string, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.mayHaveChanged(now) {
		g.look = now
		g.reread()
	}
	until, ok := g.known[sum]
	return g.users[user], ok && now.Before(until)
}

// reread reads the file again if it has changed. While it cannot be read, only the users
// of the config may sign in.
func (g *passwords) reread() {
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

func (g *passwords) remember(user, hash string, sum [32]byte) {
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
