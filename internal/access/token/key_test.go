package token

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pair is a private key and how it signs.
type pair struct {
	name    string
	private crypto.Signer
	methods []jwt.SigningMethod
}

func pairs(t testing.TB) []pair {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, minRSA)
	if err != nil {
		t.Fatal(err)
	}
	all := []pair{{"RSA", rsaKey, []jwt.SigningMethod{
		jwt.SigningMethodRS256, jwt.SigningMethodRS384, jwt.SigningMethodRS512, jwt.SigningMethodPS256, jwt.SigningMethodPS384, jwt.SigningMethodPS512,
	}}}
	for method, curve := range map[jwt.SigningMethod]elliptic.Curve{
		jwt.SigningMethodES256: elliptic.P256(), jwt.SigningMethodES384: elliptic.P384(), jwt.SigningMethodES512: elliptic.P521(),
	} {
		all = append(all, pair{curve.Params().Name, ecKey(t, curve), []jwt.SigningMethod{method}})
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return append(all, pair{"Ed25519", ed, []jwt.SigningMethod{jwt.SigningMethodEdDSA}})
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func publicPEM(t testing.TB, k crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func file(t testing.TB, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newChecker(t *testing.T, o Options) *Checker {
	t.Helper()
	c, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sign makes a token; kid may be "".
func sign(t testing.TB, method jwt.SigningMethod, kid string, private any, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKeyDecides signs with every key in every way it can, checks that its own
// public key takes it, and no other; and that nobody can sign with the public
// key itself, or not at all.
func TestKeyDecides(t *testing.T) {
	all := pairs(t)
	for _, p := range all {
		text := publicPEM(t, p.private)
		c := newChecker(t, Options{PublicKey: file(t, text)})
		set := newChecker(t, Options{JWKS: serveKeys(t, p.name, p.private)})
		for _, q := range all {
			for _, method := range q.methods {
				token := sign(t, method, p.name, q.private, jwt.MapClaims{"sub": "7"})
				for way, checker := range map[string]*Checker{"PEM": c, "JWKS": set} {
					_, err := checker.Wait(t.Context(), token)
					if own := p.name == q.name; own && err != nil {
						t.Errorf("%s: %s with %s: %v", way, p.name, method.Alg(), err)
					} else if !own && !errors.Is(err, ErrUnauthorized) {
						t.Errorf("%s: %s takes a token of %s: %v", way, p.name, q.name, err)
					}
				}
			}
		}
		der, err := x509.MarshalPKIXPublicKey(p.private.Public())
		if err != nil {
			t.Fatal(err)
		}
		for _, forged := range []string{
			sign(t, jwt.SigningMethodHS256, p.name, text, jwt.MapClaims{"sub": "7"}),
			sign(t, jwt.SigningMethodHS256, p.name, der, jwt.MapClaims{"sub": "7"}),
			sign(t, jwt.SigningMethodNone, p.name, jwt.UnsafeAllowNoneSignatureType, jwt.MapClaims{"sub": "7"}),
		} {
			for way, checker := range map[string]*Checker{"PEM": c, "JWKS": set} {
				if _, err := checker.Wait(t.Context(), forged); !errors.Is(err, ErrUnauthorized) {
					t.Errorf("%s: %s takes a forged token: %v", way, p.name, err)
				}
			}
		}
	}
}

// TestSecrets: a secret signs with the hashes that are no longer than it.
func TestSecrets(t *testing.T) {
	for size, want := range map[int]string{32: "HS256", 47: "HS256", 48: "HS256 HS384", 63: "HS256 HS384", 64: "HS256 HS384 HS512"} {
		secret := strings.Repeat("s", size)
		c, err := New(Options{Secret: secret}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var takes []string
		for _, m := range []jwt.SigningMethod{jwt.SigningMethodHS256, jwt.SigningMethodHS384, jwt.SigningMethodHS512} {
			if _, err := c.Check(sign(t, m, "", []byte(secret), jwt.MapClaims{"sub": "7"})); err == nil {
				takes = append(takes, m.Alg())
			} else if !errors.Is(err, ErrUnauthorized) || !strings.Contains(err.Error(), "the key is for "+strings.ReplaceAll(want, " ", " or ")) {
				t.Errorf("%d bytes, %s: %v", size, m.Alg(), err)
			}
		}
		if got := strings.Join(takes, " "); got != want {
			t.Errorf("a secret of %d bytes is for %s, want %s", size, got, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExpired: an expired token can be told from one that is wrong.
func TestExpired(t *testing.T) {
	c, err := New(Options{Secret: strings.Repeat("s", 32)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for at, want := range map[time.Duration]bool{-time.Hour: true, -Leeway / 2: false, time.Hour: false} {
		_, err := c.Check(sign(t, jwt.SigningMethodHS256, "", []byte(strings.Repeat("s", 32)), jwt.MapClaims{"exp": time.Now().Add(at).Unix()}))
		if errors.Is(err, ErrExpired) != want || want && !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s from now: %v", at, err)
		}
	}
	if _, err := c.Check("x"); err == nil || errors.Is(err, ErrExpired) {
		t.Errorf("nonsense is %v", err)
	}
}

func TestPEM(t *testing.T) {
	ec := ecKey(t, elliptic.P256())
	good := publicPEM(t, ec)
	small := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537}
	smallDER, err := x509.MarshalPKIXPublicKey(small)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, ec.Public(), ec)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		text []byte
		want string
	}{
		{"public", good, ""},
		{"text around it", append([]byte("my key\n"), good...), ""},
		{"certificate", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), ""},
		{"four", []byte(strings.Repeat(string(good), maxTried)), ""},
		{"five", []byte(strings.Repeat(string(good), maxTried+1)), "use jwks"},
		{"private", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}), "-pubout"},
		{"small", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: smallDER}), "2048"},
		{"broken", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: smallDER[:20]}), "block PUBLIC KEY"},
		{"something else", pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: smallDER}), "write a PUBLIC KEY"},
		{"none", []byte("hello"), "BEGIN PUBLIC KEY"},
		{"big", make([]byte, maxPEM+1), "at most"},
	} {
		c, err := New(Options{PublicKey: file(t, tt.text)}, slog.Default())
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "":
			if _, err := c.Check(sign(t, jwt.SigningMethodES256, "", ec, jwt.MapClaims{})); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			c.Close()
		case err == nil || !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := New(Options{PublicKey: "missing.pem"}, slog.Default()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// b64 is how RFC 7518 writes numbers.
func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// publicJWK is a key as sets have it.
func publicJWK(t testing.TB, kid string, k crypto.Signer) map[string]any {
	t.Helper()
	m := map[string]any{"kid": kid, "use": "sig"}
	switch p := k.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(p.N.Bytes()), b64(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := p.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := (len(point) - 1) / 2
		m["kty"], m["crv"], m["x"], m["y"] = "EC", p.Params().Name, b64(point[1:1+half]), b64(point[1+half:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(p)
	}
	return m
}

func mustNumber(t testing.TB, v any) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(v.(string))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func setOf(t testing.TB, keys ...map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseSet(t *testing.T) {
	ec := ecKey(t, elliptic.P256())
	with := func(more ...any) map[string]any {
		m := publicJWK(t, "a", ec)
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The example of RFC 8037, A.2, and of RFC 7517, A.1.
	rfc := []byte(`{"keys":[
		{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
		{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"enc","kid":"1"},
		{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB","alg":"RS256","kid":"2011-04-29"}]}`)
	for _, tt := range []struct {
		name string
		text []byte
		want int // keys; -1 is an error
	}{
		{"of the RFCs", rfc, 2},
		{"good", setOf(t, with()), 1},
		{"two", setOf(t, with(), publicJWK(t, "b", ed)), 2},
		{"ops", setOf(t, with("key_ops", []string{"verify"})), 1},
		{"padded", setOf(t, with("x", publicJWK(t, "a", ec)["x"].(string)+"=")), 1},
		{"for encryption", setOf(t, with("use", "enc")), -1},
		{"for signing only", setOf(t, with("key_ops", []string{"sign"})), -1},
		{"another algorithm", setOf(t, with("alg", "RS256")), -1},
		{"no point of the curve", setOf(t, with("y", with()["x"])), -1},
		{"short", setOf(t, with("x", "AQAB")), -1},
		{"long", setOf(t, with("y", b64(append([]byte{0}, mustNumber(t, with()["y"])...)))), -1},
		{"private parts", setOf(t, with("d", "AQAB")), 1},
		{"broken certificates", setOf(t, with("x5c", []string{"AAAA"}, "x5t", "A=", "x5u", "http://h/")), 1},
		{"RSA of 8192 bits, zero before it", setOf(t, map[string]any{"kty": "RSA", "n": b64(append([]byte{0}, bytes.Repeat([]byte{255}, 1024)...)), "e": "AQAB"}), 1},
		{"RSA of 1024 bits", setOf(t, map[string]any{"kty": "RSA", "n": b64(bytes.Repeat([]byte{255}, 128)), "e": "AQAB"}), -1},
		{"exponent of nine bytes", setOf(t, map[string]any{"kty": "RSA", "n": b64(bytes.Repeat([]byte{255}, 256)), "e": b64([]byte{1, 0, 0, 0, 0, 0, 1, 0, 1})}), -1},
		{"another curve", setOf(t, with("crv", "P-384")), -1},
		{"unknown curve", setOf(t, with("crv", "secp256k1")), -1},
		{"a secret", setOf(t, map[string]any{"kty": "oct", "k": b64([]byte("0123456789abcdef0123456789abcdef"))}), -1},
		{"even exponent", setOf(t, map[string]any{"kty": "RSA", "n": b64(make([]byte, 256)), "e": "AQAA"}), -1},
		{"huge exponent", setOf(t, map[string]any{"kty": "RSA", "n": b64([]byte(strings.Repeat("x", 256))), "e": "AQABAQE"}), -1},
		{"broken beside good", []byte(`{"keys":[7,{"kty":5},` + strings.TrimPrefix(string(setOf(t, with())), `{"keys":[`)), 1},
		{"empty", []byte(`{"keys":[]}`), -1},
		{"a page", []byte(`<html>`), -1},
		{"many", setOf(t, make([]map[string]any, maxKeys+1)...), -1},
	} {
		list, err := parseSet(tt.text)
		if got := len(list); (err != nil) != (tt.want < 0) || (err == nil && got != tt.want) {
			t.Errorf("%s: %d keys, %v; want %d", tt.name, got, err, tt.want)
		}
	}
}

// FuzzParseSet looks for a set that panics, or a key without a use.
func FuzzParseSet(f *testing.F) {
	for _, p := range pairs(f) {
		f.Add(setOf(f, publicJWK(f, p.name, p.private)))
	}
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":""}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseSet(text)
		if (err == nil) != (len(list) > 0) {
			t.Errorf("%d keys, %v", len(list), err)
		}
		for _, k := range list {
			if len(k.algs) == 0 || k.public == nil {
				t.Errorf("%+v", k)
			}
		}
	})
}
