package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
)

// TestCompose: what compose.yaml and the Dockerfile say to the program is what it
// understands.
func TestCompose(t *testing.T) {
	model := modelOf(t, new(program))
	manual := cli.Manual(model.Model.Node, nil)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "packaging", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	compose := read("compose.yaml")
	variables := regexp.MustCompile(`MILLRACE_\w+`).FindAllString(compose, -1)
	if len(variables) < 4 {
		t.Errorf("compose.yaml sets %v", variables)
	}
	for _, v := range variables {
		if !strings.Contains(manual, `Also \fB`+v+`\fR`) {
			t.Errorf("compose.yaml sets %s, which no verb reads", v)
		}
	}
	if !strings.Contains(compose, "test: [CMD, /millrace, health]") || !strings.Contains(read("Dockerfile"), `CMD ["/millrace", "health"]`) {
		t.Error("the health check is not by the verb health")
	}
	if _, err := model.Parse([]string{"health"}); err != nil {
		t.Error(err)
	}
}
