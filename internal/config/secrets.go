package config

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/internal/observe/redact"
)

// secretKeys are the keys of a config whose values are secrets, or would be in
// other programs' configs. Mistyped ones count as well: that they are is why
// their line is shown.
var secretKeys = []string{"secret", "keys", "password", "token"}

// plainKeys are keys that look like a mistyped one of those, and are none.
var plainKeys = []string{"keep", "key", "open", "shared", "security"}

// keyAt finds what may be a key on a line of YAML, in quotes or without.
var keyAt = regexp.MustCompile(`(?:^|[\s{,["'])([A-Za-z_][A-Za-z0-9_-]*)["']?\s*:(?:\s|$)`)

// variableOnly is a value that comes from outside the file, and holds nothing.
var variableOnly = regexp.MustCompile(`^["']?(\$\{[A-Za-z0-9_]+\}\s*)+["']?\s*$`)

// withoutSecrets masks the secrets in the lines of a config, character by
// character, so that a mistake can be pointed at. It reads lines and not YAML:
// a file that is broken shall not show more than one that is not. Where in
// doubt, more is masked.
func withoutSecrets(lines []string) []string {
	clean := make([]string, len(lines))
	below := -1   // a secret's key is in this column: what is deeper belongs to it
	closing := "" // the list or text of a secret that is open ends with this
	for i, line := range lines {
		text := strings.TrimLeft(line, " \t")
		indent := len(line) - len(text)
		switch {
		case strings.TrimSpace(text) == "":
			clean[i] = line
			continue
		case closing != "":
			end := strings.Index(line, closing)
			if end < 0 {
				clean[i] = stars(line)
				continue
			}
			closing, below = "", -1
			clean[i] = stars(line[:end]) + redact.InPlace(line[end:])
			continue
		case below >= 0 && (indent > below || indent == below && strings.HasPrefix(text, "-")):
			item := len(text) - len(strings.TrimPrefix(text, "- "))
			clean[i] = line[:indent+item] + stars(text[item:])
			continue
		}
		clean[i], below, closing = maskLine(line)
	}
	return clean
}

// maskLine masks the values of the secret keys of one line, and says what of
// the next lines belongs to the last of them: what is deeper than below, or
// everything up to closing.
func maskLine(line string) (clean string, below int, closing string) {
	var b strings.Builder
	below = -1
	at := 0
	for at < len(line) {
		m := keyAt.FindStringSubmatchIndex(line[at:])
		if m == nil {
			break
		}
		key, value := line[at+m[2]:at+m[3]], at+m[1]
		if !isSecretKey(key) {
			b.WriteString(line[at:value])
			at = value
			continue
		}
		column := at + m[2]
		end, open := secretEnd(line, value, strings.ContainsAny(line[:column], "{["))
		b.WriteString(line[at:value])
		if v := line[value:end]; variableOnly.MatchString(v) {
			b.WriteString(v)
		} else {
			b.WriteString(stars(v))
		}
		below, closing = -1, open
		if end == len(line) && open == "" {
			below = column
		}
		at = end
	}
	b.WriteString(line[at:])
	return redact.InPlace(b.String()), below, closing
}

func isSecretKey(key string) bool {
	named := Nearest(key, secretKeys) != "" || strings.HasSuffix(strings.ToLower(key), "_secret")
	return named && !slices.Contains(plainKeys, key)
}

// secretEnd is where the value that begins at i ends. closing is what it ends
// with on a later line, if it is open at the end of this one.
func secretEnd(line string, i int, flow bool) (end int, closing string) {
	for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
		i++
	}
	if i == len(line) {
		return i, ""
	}
	pairs := map[byte]string{'"': `"`, '\'': `'`, '[': "]", '{': "}"}
	if closing, ok := pairs[line[i]]; ok {
		if n := strings.LastIndex(line[i+1:], closing); n >= 0 { // the last: more is masked where there are several
			return i + 1 + n + len(closing), ""
		}
		return len(line), closing
	}
	if flow {
		if n := strings.IndexAny(line[i:], ",}]"); n >= 0 {
			return i + n, ""
		}
	}
	return len(line), ""
}

// stars masks all but spaces and the signs that lists and texts are made of.
func stars(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !strings.ContainsRune(" \t\r[]{},\"'", r) {
			return '*'
		}
		return r
	}, s)
}
