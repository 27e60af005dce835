package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/MicahParks/jwkset"
)

const (
	// minRSA is RFC 7518, 3.3; past maxRSA a signature takes milliseconds,
	// which is too good a lever for who sends wrong ones.
	minRSA, maxRSA = 2048, 8192
	// maxPEM is more than maxTried certificates need.
	maxPEM = 64 << 10
	// maxKeys bounds a key set; issuers have two or three.
	maxKeys = 100
)

// A key verifies signatures.
type key struct {
	id     string   // kid, "" if it has none
	algs   []string // that it may be used with: what it is decides, not the token
	public any      // []byte, *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey
}

// algorithms are all that any key may be used with.
func algorithms() []string {
	return []string{
		"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
	}
}

// newKey says what a public key may be used for.
func newKey(public any) (key, error) {
	k := key{public: public}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if n := p.N.BitLen(); n < minRSA || n > maxRSA {
			return k, fmt.Errorf("an RSA key of %d bits is out of range: %d to %d", n, minRSA, maxRSA)
		}
		if p.E < 3 || p.E > math.MaxInt32 || p.E%2 == 0 {
			return k, fmt.Errorf("an RSA key with the exponent %d is broken", p.E)
		}
		k.algs = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		switch p.Curve {
		case elliptic.P256():
			k.algs = []string{"ES256"}
		case elliptic.P384():
			k.algs = []string{"ES384"}
		case elliptic.P521():
			k.algs = []string{"ES512"}
		default:
			return k, fmt.Errorf("the curve %s is not known: use P-256", p.Params().Name)
		}
	case ed25519.PublicKey:
		if len(p) != ed25519.PublicKeySize {
			return k, fmt.Errorf("an Ed25519 key of %d bytes is broken", len(p))
		}
		k.algs = []string{"EdDSA"}
	default:
		return k, fmt.Errorf("a key of the type %T is not known: use RSA, P-256 or Ed25519", public)
	}
	return k, nil
}

// secretKey is for the algorithms whose hash is no longer than the secret (RFC 7518,
// 3.2).
func secretKey(secret string) key {
	k := key{algs: []string{"HS256"}, public: []byte(secret)}
	for alg, size := range map[string]int{"HS384": 48, "HS512": 64} {
		if len(secret) >= size {
			k.algs = append(k.algs, alg)
		}
	}
	slices.Sort(k.algs)
	return k
}

// fixed are keys that stay what they are.
type fixed []key

// find implements keys.
func (f fixed) find(alg, kid string) ([]key, error) {
	// The keys have no names here: the token's kid may be any.
	found := fitting(f, alg, "")
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: the token is signed with %s, the key is for %s", ErrUnauthorized, alg, strings.Join(f[0].algs, " or "))
	}
	return found, nil
}

// keys reads what the options name. A key set is to be run by the caller.
func (j Options) keys(errorLog *slog.Logger) (keys, *keySet, error) {
	switch {
	case j.Secret != "":
		return fixed{secretKey(j.Secret)}, nil, nil
	case j.PublicKey != "":
		list, err := readPEM(j.PublicKey)
		return fixed(list), nil, err
	}
	set := newKeySet(j.JWKS, errorLog)
	return set, set, nil
}

// readPEM reads the public keys of a file.
func readPEM(name string) ([]key, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("public_key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxPEM {
		return nil, fmt.Errorf("public_key: %s is not a file of at most %d bytes", name, maxPEM)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("public_key: %w", err)
	}
	list, err := parsePEM(text)
	if err != nil {
		return nil, fmt.Errorf("public_key: %s: %w", name, err)
	}
	return list, nil
}

func parsePEM(text []byte) ([]key, error) {
	var list []key
	for len(list) <= maxTried {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		public, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		k, err := newKey(public)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	switch {
	case len(list) == 0:
		return nil, errors.New("there is no PEM block in it, which begins with -----BEGIN PUBLIC KEY-----")
	case len(list) > maxTried:
		return nil, fmt.Errorf("there are more than the %d keys that a token can be tried with: use jwks", maxTried)
	}
	return list, nil
}

func parseBlock(block *pem.Block) (public any, err error) {
	switch block.Type {
	case "PUBLIC KEY":
		public, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		public, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			public = c.PublicKey
		}
	default:
		if strings.Contains(block.Type, "PRIVATE") {
			return nil, errors.New("this is a private key, which only who signs tokens may have: make a public one with openssl pkey -in FILE -pubout")
		}
		err = errors.New("write a PUBLIC KEY or a CERTIFICATE")
	}
	if err != nil {
		return nil, fmt.Errorf("block %s: %w", Printable(block.Type), err)
	}
	return public, nil
}

// parseSet reads a key set (RFC 7517, 5): of what it holds those keys that
// verify signatures. Others are not a fault: sets have keys for encryption too,
// and of kinds that nobody knew when we were written. Secrets (kty oct) are
// among them: what everybody can fetch is none.
func parseSet(data []byte) ([]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("it is no key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are too many: at most %d", len(set.Keys), maxKeys)
	}
	var list []key
	for _, raw := range set.Keys {
		var one jwkset.JWKMarshal
		if json.Unmarshal(raw, &one) != nil {
			continue
		}
		if k, ok := keyOf(one); ok {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no key in it that signatures could be verified with: RSA, EC or OKP, of use sig")
	}
	return list, nil
}

// keyOf is what a key of a set is, if it verifies signatures (RFC 7517, 4; RFC 7518,
// 6; RFC 8037, 2). Certificates beside it say nothing that is asked here.
func keyOf(j jwkset.JWKMarshal) (key, bool) {
	if (j.USE != "" && j.USE != jwkset.UseSig) || (j.KEYOPS != nil && !slices.Contains(j.KEYOPS, jwkset.KeyOpsVerify)) {
		return key{}, false
	}
	read, err := jwkset.NewJWKFromMarshal(jwkset.JWKMarshal{KTY: j.KTY, CRV: j.CRV, N: j.N, E: j.E, X: j.X, Y: j.Y}, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return key{}, false
	}
	k, err := newKey(read.Key())
	if err != nil {
		return key{}, false
	}
	if ec, ok := k.public.(*ecdsa.PublicKey); ok { // the library takes coordinates of other sizes (RFC 7518, 6.2.1.2)
		size := base64.RawURLEncoding.EncodedLen((ec.Curve.Params().BitSize + 7) / 8)
		if len(strings.TrimRight(j.X, "=")) != size || len(strings.TrimRight(j.Y, "=")) != size {
			return key{}, false
		}
	}
	k.id = j.KID
	if alg := j.ALG.String(); alg != "" {
		if !slices.Contains(k.algs, alg) {
			return key{}, false
		}
		k.algs = []string{alg}
	}
	return k, true
}
