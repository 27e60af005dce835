package packcmd

import (
	"os"
	"path/filepath"
	"testing"

	"millrace/internal/config"
)

// What a slim base would leave out is not packed behind one: a password least of all.
func TestSlimPlan(t *testing.T) {
	dir := t.TempDir()
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(text string, will bool) {
		t.Helper()
		cfg, err := config.Parse("x.yaml", []byte(text))
		if cfg == nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		if plan, err := slimPlan(cfg); err != nil || (plan != nil) != will {
			t.Errorf("%s: a slim base will do: %v, %v", text, plan != nil, err)
		}
	}
	for text, will := range map[string]bool{
		"- routes: {/: {static: {root: " + dir + "}}}": true,
		"- {headers: {security: on}, cors: 'https://a.example', routes: {/: {static: {root: " + dir + "}, headers: {set: {X-A: b}}, cors: '*'}}}": true,
		"- {auth: {file: " + users + "}, routes: {/: {static: {root: " + dir + "}}}}":                                                             false,
		"- routes: {/: {static: {root: " + dir + "}, auth: {file: " + users + "}}}":                                                               false,
		"- {rules: [{path: /a, deny: {}}], routes: {/: {static: {root: " + dir + "}}}}":                                                           false,
		"- {errors: {404: /404.html}, routes: {/: {static: {root: " + dir + "}}}}":                                                                false,
		"- routes: {/: {static: {root: " + dir + "}, try: ['{path}', '=404']}}":                                                                   false,
		"- routes: {/: {static: {root: " + dir + "}, no_log: true}}":                                                                              false,
		"- routes: {/: {static: {root: " + dir + "}}, '/a/*/b': {redirect: {to: '/{1}'}}}":                                                        false,
	} {
		check("sites:\n"+text+"\n", will)
	}
	site := "\nsites:\n- routes: {/: {static: {root: " + dir + "}}}\n"
	for text, will := range map[string]bool{
		"log: {format: json}":                      true,
		"sandbox: off":                             true,
		"request_id: off":                          true,
		"slow_requests: off":                       true,
		"sandbox: auto":                            false,
		"sandbox: require":                         false,
		"request_id: on":                           false,
		"slow_requests: {recorder: true}":          false,
		"maintenance: {on: true}":                  false,
		"maintenance: {text: soon}":                false,
		"tracing: {otlp: 'http://127.0.0.1:4318'}": false,
	} {
		check(text+site, will)
	}
}
