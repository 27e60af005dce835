package store_test

import (
	"strings"
	"testing"

	"millrace/store"
)

func TestShared(t *testing.T) {
	for want, s := range map[string]store.Shared{
		"redis://h":                        {URL: "redis://h"},
		"redis://h?prefix=shop":            {URL: "redis://h", Prefix: "shop"},
		"rediss://h?ca=/x&prefix=a%2Fb%26": {URL: "rediss://h?ca=/x", Prefix: "a/b&"},
	} {
		if got := s.Address(); got != want || s.Check() != nil {
			t.Errorf("%+v is %s, %v; want %s", s, got, s.Check(), want)
		}
	}
	for want, s := range map[string]store.Shared{
		"no \"url\"": {Prefix: "shop"}, "keep one": {URL: "redis://h?prefix=a", Prefix: "shop"}, "s3://host/bucket/prefix": {URL: "s3://h/b", Prefix: "shop"},
	} {
		if err := s.Check()["prefix"]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want something about %q", s, err, want)
		}
	}
}
