//go:build !small

package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shipped returns a module that the library http-wasm-host-go brings, by its path there.
func shipped(t testing.TB, path string) []byte {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/http-wasm/http-wasm-host-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), path))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// A guest is a module that a test puts together from WebAssembly's instructions.
type guest struct {
	request  []byte // the body of handle_request, up to its end
	response []byte // the body of handle_response
	start    []byte // the body of _initialize; nil: there is none
	pages    int    // of memory at the start; 0: 1
	locals   byte   // i32 variables of each function, behind its arguments
	data     string // at address 0
	tables   []byte // the content of the section of tables; nil: there is none
}

// Functions that guests import here, by their index.
const (
	fnEnableFeatures = iota
	fnSetHeader
	fnReadBody
	fnWriteBody
	fnSetStatus
	fnSetURI
	fnSetMethod
	fnLog
	imports
)

// Instructions.
const (
	unreachable = 0x00
	loop        = 0x03
	branch      = 0x0c
	end         = 0x0b
	drop        = 0x1a
	growMemory  = 0x40
	noResult    = 0x40
)

// i32s are constants, pushed in their order; each below 64.
func i32s(n ...byte) (code []byte) {
	for _, v := range n {
		code = append(code, 0x41, v)
	}
	return code
}

// call calls a function with constants.
func call(fn byte, args ...byte) []byte { return append(i32s(args...), 0x10, fn) }

// next and done are the results of handle_request.
func next() []byte { return []byte{0x42, 1} }
func done() []byte { return []byte{0x42, 0} }

func seq(parts ...[]byte) (code []byte) {
	for _, p := range parts {
		code = append(code, p...)
	}
	return code
}

// module is the guest's binary.
func (g guest) module() []byte {
	vec := func(items ...[]byte) []byte { return append(leb(len(items)), seq(items...)...) }
	name := func(s string) []byte { return append(leb(len(s)), s...) }
	types := func(n int, results ...byte) []byte {
		return seq([]byte{0x60}, leb(n), []byte(strings.Repeat("\x7f", n)), leb(len(results)), results)
	}
	section := func(id byte, b []byte) []byte { return seq([]byte{id}, leb(len(b)), b) }
	body := func(code []byte) []byte {
		b := seq([]byte{1, g.locals, 0x7f}, code, []byte{end})
		return append(leb(len(b)), b...)
	}
	const host = "http_handler"
	imported := func(s string, kind byte) []byte { return seq(name(host), name(s), []byte{0, kind}) }
	functions, exports, bodies := [][]byte{{0}, {1}}, [][]byte{
		seq(name(handleRequest), []byte{0, imports}), seq(name(handleResponse), []byte{0, imports + 1}), seq(name(memoryName), []byte{2, 0}),
	}, [][]byte{body(g.request), body(g.response)}
	if g.start != nil {
		functions, exports, bodies = append(functions, []byte{7}), append(exports, seq(name("_initialize"), []byte{0, imports + 2})), append(bodies, body(g.start))
	}
	return seq([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, vec(types(0, 0x7e), types(2), types(1, 0x7f), types(5), types(3, 0x7e), types(3), types(1), types(0))),
		section(2, vec(imported("enable_features", 2), imported("set_header_value", 3), imported("read_body", 4), imported("write_body", 5), imported("set_status_code", 6), imported("set_uri", 1), imported("set_method", 1), imported("log", 5))),
		section(3, vec(functions...)),
		g.tableSection(),
		section(5, vec(append([]byte{0}, leb(max(g.pages, 1))...))),
		section(7, vec(exports...)),
		section(10, vec(bodies...)),
		section(11, vec(seq([]byte{0, 0x41, 0, end}, name(g.data)))),
	)
}

func (g guest) tableSection() []byte {
	if g.tables == nil {
		return nil
	}
	return seq([]byte{tableSection}, leb(len(g.tables)), g.tables)
}

// leb is an unsigned number as WebAssembly writes it.
func leb(n int) (b []byte) {
	for {
		c := byte(n & 0x7f)
		if n >>= 7; n == 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
