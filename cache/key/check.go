package key

import (
	"errors"
	"fmt"
	"strings"

	"millrace/internal/wire/field"
)

// maxNames is how many headers, cookies or parameters a list may have: each is
// looked for at every request.
const maxNames = 100

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if o.NoQuery && (o.SortQuery || o.DropTracking || len(o.Query) > 0 || len(o.WithoutQuery) > 0) {
		faults["no_query"] = errors.New("no_query leaves the whole query out: sort_query, drop_tracking, query and without_query have no meaning beside it")
	}
	check := func(key string, list []string, fault func(string) error) {
		if len(list) > maxNames {
			faults[key] = fmt.Errorf("%d names, the limit is %d", len(list), maxNames)
			return
		}
		for _, name := range list {
			if err := fault(name); err != nil {
				faults[key] = err
				return
			}
		}
	}
	check("query", o.Query, checkParam)
	check("without_query", o.WithoutQuery, checkParam)
	check("headers", o.Headers, checkHeader)
	check("cookies", o.Cookies, func(name string) error {
		if !field.Token(name) {
			return fmt.Errorf("%q is not the name of a cookie: write one like lang", name)
		}
		return nil
	})
	return faults
}

func checkParam(name string) error {
	rest := strings.TrimSuffix(name, "*")
	if name == "" || strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune("&;=#?*", c) }) {
		return fmt.Errorf("%q is not the name of a query parameter: write one like page, or a beginning like utm_*", name)
	}
	return nil
}

func checkHeader(name string) error {
	switch {
	case !field.Token(name):
		return fmt.Errorf("%q is not the name of a header: write one like X-Tenant", name)
	case strings.EqualFold(name, "Host"):
		return errors.New("the host is part of the key already, see ignore_host")
	}
	return nil
}
