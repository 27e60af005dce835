package rfc9111

import (
	"net/http"
	"slices"
	"testing"

	"millrace/internal/wire/field"
)

func TestVary(t *testing.T) { // 4.1; RFC 9110, 12.5.5
	for _, c := range []struct {
		lines []string
		want  []string
		star  bool
	}{
		{nil, nil, false},
		{[]string{""}, nil, false},
		{[]string{"foo"}, []string{"Foo"}, false},
		{[]string{"foo ,, BAR,Foo", "accept-encoding"}, []string{"Accept-Encoding", "Bar", "Foo"}, false},
		{[]string{"*"}, nil, true},
		{[]string{"*, *"}, nil, true},
		{[]string{", *"}, nil, true},
		{[]string{"", "*"}, nil, true},
		{[]string{"*, Foo"}, []string{"Foo"}, true},
		{[]string{"Foo", "*"}, []string{"Foo"}, true},
		{[]string{"Foo Bar"}, nil, true},
	} {
		names, star := Vary(http.Header{"Vary": c.lines})
		if !slices.Equal(names, c.want) || star != c.star {
			t.Errorf("%q: %q %v", c.lines, names, star)
		}
	}
}

func TestNormal(t *testing.T) { // 4.1
	for _, c := range []struct {
		name string
		a, b []string
		same bool
	}{
		{"Foo", []string{"1,2"}, []string{" 1, 2 "}, true},
		{"Foo", []string{"1, 2"}, []string{"1", "2"}, true},
		{"Foo", []string{"1 ,\t2"}, []string{"1,2"}, true},
		{"Foo", []string{"1"}, []string{"2"}, false},
		{"Foo", []string{"1"}, nil, false},
		{"Foo", []string{""}, nil, false},
		{"Foo", nil, nil, true},
		{"Foo", []string{"a"}, []string{"A"}, false},
		{"Foo", []string{"1,2"}, []string{"2,1"}, false},
		{"Foo", []string{"a b"}, []string{"a  b"}, false},
		{"Foo", []string{`"a, b"`}, []string{`"a,b"`}, false},
		{"Foo", []string{`a, "b, c"`}, []string{`a,"b, c"`}, true},
		{"Foo", []string{`"a\", b", c`}, []string{`"a\", b",c`}, true},
		{"Foo", []string{"1,"}, []string{"1"}, false},

		{"Accept-Encoding", []string{"gzip, br"}, []string{"BR,  x-gzip"}, true},
		{"Accept-Encoding", []string{"gzip, br"}, []string{"gzip", "br"}, true},
		{"Accept-Encoding", []string{"gzip, br"}, []string{"gzip;q=1.0, br; q=1"}, true},
		{"Accept-Encoding", []string{"gzip;q=0.8, br;q=0.9"}, []string{"br, gzip;q=0.5"}, true},
		{"Accept-Encoding", []string{"gzip, br"}, []string{"gzip, br;q=0.9"}, false},
		{"Accept-Encoding", []string{"gzip, br;q=0"}, []string{"gzip"}, true},
		{"Accept-Encoding", []string{"gzip;q=0"}, []string{""}, true},
		{"Accept-Encoding", []string{"gzip;q=0.000"}, nil, false},
		{"Accept-Encoding", []string{"gzip;q=0"}, []string{"gzip"}, false},
		{"Accept-Encoding", []string{"*, gzip;q=0"}, []string{"*"}, false},
		{"Accept-Encoding", []string{"gzip, identity;q=0"}, []string{"gzip"}, false},
		{"Accept-Encoding", []string{"gzip, *;q=0"}, []string{"gzip"}, false},
		{"Accept-Encoding", []string{"gzip, identity"}, []string{"gzip"}, false},
		{"Accept-Encoding", []string{"gzip"}, nil, false},
		{"Accept-Encoding", []string{"gzip, gzip;q=0"}, []string{"gzip"}, false},
		{"Accept-Encoding", []string{"gzip;q=2"}, []string{"gzip"}, false},
		{"Accept-Encoding", []string{"gzip;q=0.1234"}, []string{"gzip;q=0.1"}, false},
		{"Accept-Encoding", []string{"gzip;level=9"}, []string{"gzip"}, false},

		{"Accept-Language", []string{"en, de"}, []string{"de, en"}, true},
		{"Accept-Language", []string{"en, de"}, []string{"eN, De"}, true},
		{"Accept-Language", []string{"en, de"}, []string{" en ,   de"}, true},
		{"Accept-Language", []string{"en, de;q=0.9"}, []string{"en, de;q=0.2"}, true},
		{"Accept-Language", []string{"en, de;q=0.9"}, []string{"de, en;q=0.9"}, false},
		{"Accept-Language", []string{"en, en-gb;q=0"}, []string{"en"}, false},
		{"Accept-Language", []string{"en"}, nil, false},
	} {
		a, b := field.Of(http.Header{c.name: c.a}), field.Of(http.Header{c.name: c.b})
		if got := Normal(c.name, a, nil) == Normal(c.name, b, nil); got != c.same {
			t.Errorf("%s %q and %q: the same is %v (%q, %q)", c.name, c.a, c.b, got, Normal(c.name, a, nil), Normal(c.name, b, nil))
		}
	}
}

func TestNormalLanguages(t *testing.T) { // RFC 4647, 3.3.1 and 3.4
	languages := []string{"en", "de", "pt-BR"}
	for value, want := range map[string]string{
		"de":                      "de",
		"de-AT":                   "de", // falls back
		"pt":                      "pt-br",
		"fr, de;q=0.5, en;q=0.4":  "de",
		"fr;q=0.5, de;q=1.0":      "de",
		"de, en":                  "en", // the first of ours
		"en;q=0.1, *":             "de",
		"*":                       "en",
		"*;q=0.5, de;q=0":         "en",
		"fr":                      " ",
		"de;q=0":                  " ",
		"":                        " ",
		"de;nonsense":             "de;nonsense",
		"de-at;q=0.3, en;q=0.2":   "de",
		"pt-br;q=0.1, pt;q=0.9":   "pt-br",
		"deutsch, english;q=0.01": " ",
	} {
		if got := Normal("Accept-Language", field.Lines{{Name: "Accept-Language", Value: value}}, languages); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	if got := Normal("Accept-Language", nil, languages); got != "" {
		t.Errorf("without the field: %q", got)
	}
}

func TestSpeaks(t *testing.T) {
	for _, c := range []struct {
		accept, content string
		want            bool
	}{
		{"fr;q=0.5, de;q=1.0", "de", true},
		{"de", "DE", true},
		{"de, en", "de", false}, // it might have chosen en
		{"de, fr;q=0.5", "fr", false},
		{"de;q=0", "de", false},
		{"*", "*", false},
		{"", "de", false},
		{"de", "de, en", false},
	} {
		if got := Speaks(field.Lines{{Name: "Accept-Language", Value: c.accept}}, []string{c.content}); got != c.want {
			t.Errorf("%q for %q: %v", c.content, c.accept, got)
		}
	}
	if Speaks(nil, []string{"de"}) || Speaks(field.Lines{{Name: "Accept-Language", Value: "de"}}, nil) {
		t.Error("a field is missing")
	}
}
