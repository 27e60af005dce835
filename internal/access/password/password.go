// Package password makes and checks hashes of passwords: bcrypt and argon2id,
// and of those in old htpasswd files also Apache's MD5 ($apr1$) and SHA-1.
package password

import (
	"bufio"
	"crypto/md5" //nolint:gosec // $apr1$ is made of it; its users are warned
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // {SHA} is
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// Bounds of what a hash may ask of this machine: a file of hashes is trusted,
// but a mistake in it must not take all memory. MaxPassword is bcrypt's, in
// bytes: what is behind it would not count. maxApr1 is htpasswd's, in bytes: a header
// full of password would take half a second.
const (
	maxArgonMemory = 256 << 10 // KiB
	maxArgonTime   = 16
	maxBcryptCost  = 16
	MaxPassword    = 72
	maxApr1        = 255
	maxFile        = 1 << 20
)

// What is new is hashed with these: 19 MiB and two passes (OWASP's smallest
// recommendation), or cost 10.
const (
	argonMemory = 19 << 10 // KiB
	argonTime   = 2
	bcryptCost  = 10
)

// Kinds of hashes that are made.
const (
	Bcrypt   = "bcrypt"
	Argon2id = "argon2id"
)

// New hashes a password.
func New(password, kind string) (string, error) {
	switch {
	case password == "":
		return "", errors.New("an empty password protects nothing")
	case len(password) > MaxPassword:
		return "", fmt.Errorf("the password is longer than %d bytes", MaxPassword)
	case kind == Argon2id:
		salt := make([]byte, 16)
		_, _ = rand.Read(salt) // never fails
		key := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, 1, 32)
		enc := base64.RawStdEncoding
		return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, argonMemory, argonTime, enc.EncodeToString(salt), enc.EncodeToString(key)), nil
	case kind != Bcrypt:
		return "", fmt.Errorf("%q is not a kind of hash: bcrypt or argon2id", kind)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcryptCost)
	if err != nil {
		return "", fmt.Errorf("bcrypt: %w", err)
	}
	return string(hash), nil
}

// Check says why something is no hash that can be used, or nil.
func Check(hash string) error {
	switch {
	case strings.HasPrefix(hash, "$2"):
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil {
			return fmt.Errorf("not a bcrypt hash: %w", err)
		}
		if cost > maxBcryptCost {
			return fmt.Errorf("a bcrypt hash of cost %d takes too long: %d at most", cost, maxBcryptCost)
		}
		return nil
	case strings.HasPrefix(hash, "$argon2id$"):
		_, err := parseArgon(hash)
		return err
	case strings.HasPrefix(hash, "$apr1$"):
		if strings.Count(hash, "$") != 3 {
			return errors.New("not an $apr1$ hash")
		}
		return nil
	case strings.HasPrefix(hash, "{SHA}"):
		return nil
	case strings.HasPrefix(hash, "$"):
		return errors.New("hashes of this kind are not known here: `millrace hash-password` makes one of bcrypt")
	}
	return errors.New("this is not a hash: `millrace hash-password` makes one")
}

// Weak reports whether a hash can be broken quickly.
func Weak(hash string) bool {
	return strings.HasPrefix(hash, "$apr1$") || strings.HasPrefix(hash, "{SHA}")
}

// Matches reports whether a hash is that of a password.
func Matches(hash, password string) bool {
	if len(password) > MaxPassword && strings.HasPrefix(hash, "$2") {
		return false
	}
	switch {
	case strings.HasPrefix(hash, "$2"):
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	case strings.HasPrefix(hash, "$argon2id$"):
		a, err := parseArgon(hash)
		if err != nil {
			return false
		}
		key := argon2.IDKey([]byte(password), a.salt, a.time, a.memory, a.threads, uint32(len(a.key)))
		return subtle.ConstantTimeCompare(key, a.key) == 1
	case strings.HasPrefix(hash, "$apr1$"):
		if len(password) > maxApr1 {
			return false
		}
		salt, _, _ := strings.Cut(hash[len("$apr1$"):], "$")
		return subtle.ConstantTimeCompare([]byte(apr1(password, salt)), []byte(hash)) == 1
	case strings.HasPrefix(hash, "{SHA}"):
		sum := sha1.Sum([]byte(password)) //nolint:gosec // as above
		return subtle.ConstantTimeCompare([]byte("{SHA}"+base64.StdEncoding.EncodeToString(sum[:])), []byte(hash)) == 1
	}
	return false
}

// argon is a hash of argon2id, taken apart.
type argon struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
}

func parseArgon(hash string) (a argon, err error) {
	fields := strings.Split(hash, "$")
	var version int
	if len(fields) != 6 {
		return a, errors.New("not an argon2id hash")
	}
	if _, err := fmt.Sscanf(fields[2], "v=%d", &version); err != nil || version != argon2.Version {
		return a, errors.New("not an argon2id hash of version 19")
	}
	if _, err := fmt.Sscanf(fields[3], "m=%d,t=%d,p=%d", &a.memory, &a.time, &a.threads); err != nil {
		return a, errors.New("not an argon2id hash: its parameters cannot be read")
	}
	if a.salt, err = base64.RawStdEncoding.DecodeString(fields[4]); err == nil {
		a.key, err = base64.RawStdEncoding.DecodeString(fields[5])
	}
	switch {
	case err != nil || len(a.salt) < 8 || len(a.key) < 16 || len(a.key) > 64:
		return a, errors.New("not an argon2id hash: its salt or key cannot be read")
	case a.memory == 0 || a.memory > maxArgonMemory || a.time == 0 || a.time > maxArgonTime || a.threads == 0 || a.threads > 16:
		return a, fmt.Errorf("an argon2id hash with %s takes too much: %d KiB and %d passes at most", fields[3], maxArgonMemory, maxArgonTime)
	}
	return a, nil
}

// apr1 is Apache's MD5: 1000 rounds.
func apr1(password, salt string) string {
	const magic = "$apr1$"
	salt = salt[:min(8, len(salt))]
	inner := md5.Sum([]byte(password + salt + password)) //nolint:gosec // as above
	h := md5.New()                                       //nolint:gosec // as above
	_, _ = io.WriteString(h, password+magic+salt)
	for n := len(password); n > 0; n -= 16 {
		_, _ = h.Write(inner[:min(16, n)])
	}
	for n := len(password); n > 0; n >>= 1 {
		if n&1 == 1 {
			_, _ = h.Write([]byte{0})
		} else {
			_, _ = io.WriteString(h, password[:1])
		}
	}
	sum := h.Sum(nil)
	for i := range 1000 {
		h.Reset()
		one, other := sum, []byte(password)
		if i&1 == 1 {
			one, other = other, one
		}
		_, _ = h.Write(one)
		if i%3 != 0 {
			_, _ = io.WriteString(h, salt)
		}
		if i%7 != 0 {
			_, _ = io.WriteString(h, password)
		}
		_, _ = h.Write(other)
		sum = h.Sum(nil)
	}
	return magic + salt + "$" + apr1Text(sum)
}

func apr1Text(sum []byte) string {
	const digits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	out := make([]byte, 0, 22)
	put := func(v uint, n int) {
		for range n {
			out = append(out, digits[v&63])
			v >>= 6
		}
	}
	for i := range 5 {
		last := i + 12
		if i == 4 {
			last = 5
		}
		put(uint(sum[i])<<16|uint(sum[i+6])<<8|uint(sum[last]), 4)
	}
	put(uint(sum[11]), 2)
	return string(out)
}

// Parse reads a file of lines "name:hash", as htpasswd writes it.
func Parse(r io.Reader) (map[string]string, error) {
	users := map[string]string{}
	within := &io.LimitedReader{R: r, N: maxFile + 1}
	lines := bufio.NewScanner(within)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, hash, ok := strings.Cut(line, ":")
		hash, _, _ = strings.Cut(hash, ":") // a comment
		if !ok || name == "" {
			return nil, fmt.Errorf("line %d is not name:hash", n)
		}
		if err := Check(hash); err != nil {
			return nil, fmt.Errorf("line %d, %s: %w", n, name, err)
		}
		users[name] = hash
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	if within.N == 0 { // who stands behind that would be kept out without a word
		return nil, fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	return users, nil
}
