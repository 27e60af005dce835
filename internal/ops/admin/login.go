package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// LeastToken is how many bytes a token has at least: it can be guessed at over
	// the network.
	LeastToken = 16

	// loginPath has the form that asks for the token, and openPrefix what that page
	// needs.
	loginPath  = "/dashboard/login"
	logoutPath = "/dashboard/logout"
	openPrefix = "/dashboard/assets/"

	sessionTime = 12 * time.Hour

	// So many wrong tokens may an address (a /64 network of IPv6) send in a window;
	// more are not looked at until it is over. At most maxGuessers are remembered.
	maxGuesses  = 5
	guessWindow = time.Minute
	maxGuessers = 4096
)

// gate asks for a token: programs send it as "Authorization: Bearer TOKEN" with every
// request, browsers get a cookie for it.
type gate struct {
	next   http.Handler
	token  [sha256.Size]byte // its sum, so that comparing says nothing of its length
	key    []byte            // of the cookies' signatures: another token ends all sessions
	cookie string            // its name has the port: cookies are the same for all ports of a host

	mu       sync.Mutex
	guessers map[netip.Addr]*guesser
}

// guesser is an address that has sent wrong tokens.
type guesser struct {
	wrong int
	since time.Time
}

// newGate puts a gate before next.
func newGate(token string, port int, next http.Handler) *gate {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("millrace admin session"))
	return &gate{
		next: next, token: sha256.Sum256([]byte(token)), key: mac.Sum(nil), cookie: fmt.Sprintf("millrace_admin_%d", port),
		guessers: map[netip.Addr]*guesser{},
	}
}

// gatedBy is for newHandler: nil where no token is asked for.
func gatedBy(token string, at net.Addr) func(http.Handler) http.Handler {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || token == "" {
		return nil
	}
	return func(next http.Handler) http.Handler { return newGate(token, tcp.Port, next) }
}

// ServeHTTP implements [http.Handler].
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/healthz", strings.HasPrefix(r.URL.Path, openPrefix): // no secrets
		g.next.ServeHTTP(w, r)
	case r.URL.Path == loginPath:
		g.login(w, r)
	case r.URL.Path == logoutPath && r.Method == http.MethodPost:
		http.SetCookie(w, g.cookieOf("", -1))
		http.Redirect(w, r, loginPath, http.StatusSeeOther)
	default:
		g.ask(w, r)
	}
}

// ask lets a request pass, or says how it could.
func (g *gate) ask(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(g.cookie); err == nil && g.genuine(c.Value, time.Now()) {
		g.next.ServeHTTP(w, r)
		return
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") { // RFC 6750, 2.1
		switch right, wait := g.check(r, strings.TrimSpace(token)); {
		case right:
			g.next.ServeHTTP(w, r)
			return
		case wait > 0:
			tooMany(w, wait)
			return
		}
	} else if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, loginPath, http.StatusSeeOther)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="millrace admin"`)
	text(w, http.StatusUnauthorized, "This listener asks for its token (admin.token): send it as \"Authorization: Bearer TOKEN\". "+
		"Commands of millrace take it from MILLRACE_ADMIN_TOKEN, browsers log in at "+loginPath+".\n")
}

func tooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := int(wait/time.Second) + 1
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	text(w, http.StatusTooManyRequests, fmt.Sprintf("Too many wrong tokens came from this address. Try again in %d seconds.\n", seconds))
}

// check compares a token, unless the client has guessed too often; then wait says
// for how long it must not.
func (g *gate) check(r *http.Request, token string) (right bool, wait time.Duration) {
	from, now := clientOf(r), time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.guessers[from]
	if who != nil && now.Sub(who.since) >= guessWindow {
		delete(g.guessers, from)
		who = nil
	}
	if who != nil && who.wrong >= maxGuesses {
		return false, guessWindow - now.Sub(who.since)
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 {
		delete(g.guessers, from)
		return true, 0
	}
	if who == nil {
		if len(g.guessers) >= maxGuessers {
			for other := range g.guessers { // any of them: it may guess again, and that is all
				delete(g.guessers, other)
				break
			}
		}
		who = &guesser{since: now}
		g.guessers[from] = who
	}
	who.wrong++
	return false, 0
}

// clientOf is what guesses are counted by.
func clientOf(r *http.Request) netip.Addr {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	addr, _ := netip.ParseAddr(host) // the zero address stands for all that have none
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		prefix, _ := addr.Prefix(64) // what a customer has
		return prefix.Addr()
	}
	return addr
}

// login is the form, and what it sends.
func (g *gate) login(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, ""
	if r.Method == http.MethodPost {
		right, wait := g.check(r, r.PostFormValue("token")) // a token in the URL does not count
		switch {
		case right:
			http.SetCookie(w, g.cookieOf(g.session(time.Now()), int(sessionTime/time.Second)))
			http.Redirect(w, r, "/dashboard/", http.StatusSeeOther)
			return
		case wait > 0:
			status, text = http.StatusTooManyRequests, fmt.Sprintf("Too many wrong tokens came from this address. Try again in %d seconds.", int(wait/time.Second)+1)
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		default:
			status, text = http.StatusUnauthorized, "That is not the token."
		}
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, loginPage, text)
}

// loginPage has room for what went wrong.
const loginPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in · Millrace</title>
<link rel="icon" href="/dashboard/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/assets/dashboard.css">
</head>
<body>
<main class="login">
<h1>Millrace</h1>
<form method="post" action="/dashboard/login">
<label for="token">The token of this server's admin listener (admin.token)</label>
<input id="token" name="token" type="password" required autofocus autocomplete="current-password">
<button>Log in</button>
</form>
<p class="said bad" role="alert">%s</p>
</main>
</body>
</html>
`

// cookieOf is the session's cookie. It is not Secure: the listener has no TLS.
func (g *gate) cookieOf(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: g.cookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// A session is when it ends, some random bytes, and a signature of both.
const (
	sessionBytes = 8 + 16
	sessionWhole = sessionBytes + sha256.Size
)

// session makes one that begins now. The server keeps nothing of it.
func (g *gate) session(now time.Time) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, sessionWhole), uint64(now.Add(sessionTime).Unix()))
	b = b[:sessionBytes]
	_, _ = rand.Read(b[8:]) // never fails
	return base64.RawURLEncoding.EncodeToString(g.sign(b))
}

func (g *gate) sign(b []byte) []byte {
	mac := hmac.New(sha256.New, g.key)
	mac.Write(b[:sessionBytes])
	return mac.Sum(b[:sessionBytes])
}

// genuine reports whether a session is one of ours and has not ended.
func (g *gate) genuine(text string, now time.Time) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != sessionWhole {
		return false
	}
	want := g.sign(append(make([]byte, 0, sessionWhole), b[:sessionBytes]...))
	return subtle.ConstantTimeCompare(b, want) == 1 && uint64(now.Unix()) < binary.BigEndian.Uint64(b)
}
