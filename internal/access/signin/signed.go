package signin

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/urlpath"
)

const (
	// minSecret is the size in bytes of what HMAC-SHA256 makes: a shorter secret
	// would be the weakest part.
	minSecret = 32
	// expiresKey and signatureKey are the parameters of a signed address.
	expiresKey, signatureKey = "expires", "signature"
	// lastSecond is the end of the year 9999: a time past it was meant in
	// milliseconds.
	lastSecond = 253402300799
)

// Signed lets in whose address ends in expires=SECONDS&signature=…, with GET or
// HEAD.
//
// What is signed are the bytes of path and query before "&signature=", as they
// stand in the address; the signature is their HMAC-SHA256 in base64url without
// padding. The host is not signed. In a shell:
//
//	T="/files/a.zip?expires=$(($(date +%s) + 3600))"
//	echo "$T&signature=$(printf %s "$T" | openssl dgst -sha256 -hmac "$SECRET" -binary | basenc --base64url | tr -d =)"
type Signed struct {
	// Secret signs, at least 32 bytes. Required.
	Secret string `yaml:"secret"`
	// OldSecret was the secret before: what it has signed is good as well, while
	// one takes over from the other. Default none.
	OldSecret string `yaml:"old_secret"`
}

func (s *Signed) check() map[string]error {
	faults := map[string]error{}
	for key, secret := range map[string]string{"secret": s.Secret, "old_secret": s.OldSecret} {
		switch {
		case secret == "" && key == "secret":
			faults[key] = errors.New("nothing says which signatures are right: write secret:, 32 bytes or more")
		case secret != "" && len(secret) < minSecret:
			faults[key] = fmt.Errorf("a secret of %d bytes can be guessed: at least %d, such as openssl rand -base64 32 makes", len(secret), minSecret)
		}
	}
	return faults
}

// admit implements way.
func (s *Signed) admit(r *http.Request) (visitor, *refusal) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return visitor{}, &refusal{status: http.StatusForbidden, text: "This link is not valid. Ask for a new one where you have it from."}
	}
	asked := urlpath.AsSent(r)
	until, ok := s.valid(asked)
	switch {
	case !ok:
		return visitor{}, &refusal{status: http.StatusForbidden, text: "This link is not valid. Ask for a new one where you have it from."}
	case !time.Now().Before(until):
		return visitor{}, &refusal{status: http.StatusGone, text: "This link has expired. Ask for a new one where you have it from."}
	}
	// Whoever else may have the file has another signature: the job's answer must
	// not depend on it, nor may who answers for it learn how to ask again.
	before, signature, _ := strings.Cut(asked, "&"+signatureKey+"=")
	expires, _ := cutLast(before, expiresKey+"=")
	unsignReferer(r.Header)
	return visitor{spent: []string{signatureKey + "=" + signature, expiresKey + "=" + expires}}, nil
}

// unsignReferer takes out of Referer what opens the page that led here.
func unsignReferer(h http.Header) {
	line := h.Get("Referer")
	page, query, found := strings.Cut(line, "?")
	if !found || !strings.Contains(query, signatureKey+"=") {
		return
	}
	pairs := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name == signatureKey || name == expiresKey
	})
	if len(pairs) > 0 {
		page += "?" + strings.Join(pairs, "&")
	}
	h.Set("Referer", page)
}

// valid reports whether the signature of path and query is right, and until when
// the address is good.
func (s *Signed) valid(target string) (until time.Time, ok bool) {
	before, signature, found := strings.Cut(target, "&"+signatureKey+"=")
	if !found {
		return time.Time{}, false
	}
	right := hmac.Equal([]byte(signature), mac(s.Secret, before))
	if s.OldSecret != "" && hmac.Equal([]byte(signature), mac(s.OldSecret, before)) {
		right = true
	}
	if !right {
		return time.Time{}, false
	}
	// It is the last parameter of what was signed, so nobody else's can stand
	// behind it.
	text, found := cutLast(before, expiresKey+"=")
	n, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil || n < 0 || n > lastSecond {
		return time.Time{}, false
	}
	return time.Unix(n, 0), true
}

// cutLast is what stands behind the last time that a parameter begins.
func cutLast(target, parameter string) (after string, found bool) {
	at := max(strings.LastIndex(target, "?"+parameter), strings.LastIndex(target, "&"+parameter))
	if at < 0 {
		return "", false
	}
	return target[at+1+len(parameter):], true
}

func mac(secret, text string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text))
	return base64.RawURLEncoding.AppendEncode(nil, h.Sum(nil))
}

// Sign returns an address, or a path with a query, that is good until a time. It
// must not have the parameters expires and signature already.
func (s *Signed) Sign(address string, until time.Time) (string, error) {
	for fault := range s.check() {
		return "", s.check()[fault]
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is not an address: %w", address, errors.Unwrap(err))
	case u.Path == "" && u.Host == "" || u.Opaque != "" || u.Host == "" && !strings.HasPrefix(u.Path, "/"):
		return "", errNoTarget
	case u.Fragment != "":
		return "", errors.New("what follows # never reaches the server: leave it out")
	case u.Query().Has(expiresKey) || u.Query().Has(signatureKey):
		return "", fmt.Errorf("it has %s or %s already", expiresKey, signatureKey)
	case until.Unix() < 0 || until.Unix() > lastSecond:
		return "", errors.New("its end is not a time of this age")
	}
	u.Path = cmp.Or(u.Path, "/")
	base := u.RequestURI()
	separator := "?"
	if strings.Contains(base, "?") {
		separator = "&"
	}
	text := fmt.Sprintf("%s%s%s=%d", strings.TrimSuffix(base, "?"), separator, expiresKey, until.Unix())
	origin := ""
	if u.Host != "" {
		origin = u.Scheme + "://" + u.Host
	}
	return origin + text + "&" + signatureKey + "=" + string(mac(s.Secret, text)), nil
}
