package main

import (
	"archive/zip"
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/app"
)

// The modes in the zip: Azure runs what is executable there, and nothing else makes it so.
const (
	modeProgram fs.FileMode = 0o755
	modeFile    fs.FileMode = 0o644
)

type packageCommand struct {
	queues       []string
	out          string
	arch, binary string
}

func newFunctionsPackageCommand() *cobra.Command {
	c := &packageCommand{}
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Make the zip to deploy to Azure Functions",
		Long: `Writes a zip with the program, host.json and the functions: a queue trigger for each
--queue, the REST API, and the timers pump and housekeeping. Webhooks on other queues
work too: the pump looks at their queues once a minute.

The program in it is a static one for Linux. Inside pushlease's source it is built from
there with go build; elsewhere it is this program itself, where that is one for Linux on
--arch, or the file that --binary names.`,
		Example: `  pushlease functions package --queue orders --queue invoices
  pushlease functions package --queue orders --arch arm64 --out app-arm64.zip
  unzip -q app.zip -d app && (cd app && func azure functionapp publish MY-APP --custom)`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	cmd.Flags().StringSliceVar(&c.queues, "queue", nil, "queue that gets a trigger of its own; may be given several times")
	cmd.Flags().StringVar(&c.out, "out", "app.zip", "file to write")
	cmd.Flags().StringVar(&c.arch, "arch", "amd64", "processor of the plan: amd64 or arm64")
	cmd.Flags().StringVar(&c.binary, "binary", "", "pushlease program to put in, a static one for Linux")
	return cmd
}

func (c *packageCommand) run(cmd *cobra.Command) error {
	if c.arch != "amd64" && c.arch != "arm64" {
		return usagef("--arch is %q; use amd64 or arm64", c.arch)
	}
	files, err := app.FunctionsPackage(c.queues)
	if err != nil {
		return usagef("%s", err)
	}
	folder, err := os.MkdirTemp("", "pushlease-package-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }() // nothing in it is needed
	program, source, err := c.program(cmd, folder)
	if err != nil {
		return err
	}
	if err := checkProgram(program, c.arch); err != nil {
		return err
	}
	size, err := writePackage(c.out, files, program)
	if err != nil {
		return err
	}
	triggers := "no queue triggers: the pump sees to all queues"
	if len(c.queues) > 0 {
		triggers = "queue triggers for " + strings.Join(c.queues, ", ")
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: linux/%s, program %.1f MB (%s), %s\n", c.out, c.arch, float64(size)/1e6, source, triggers)
	return err
}

// program finds or builds what goes into the zip.
func (c *packageCommand) program(cmd *cobra.Command, folder string) (path, source string, err error) {
	if c.binary != "" {
		return c.binary, "from " + c.binary, nil
	}
	if root := sourceRoot(); root != "" {
		path = filepath.Join(folder, app.FunctionsExecutable)
		build := exec.CommandContext(cmd.Context(), "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, "./cmd/pushlease") //nolint:gosec // our own paths
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+c.arch)
		build.Stderr = cmd.ErrOrStderr()
		if err := build.Run(); err != nil {
			return "", "", fmt.Errorf("go build: %w", err)
		}
		return path, "built from source", nil
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != c.arch {
		return "", "", fmt.Errorf("this program is one for %s/%s, and the app needs linux/%s; name such a program with --binary, or run this inside pushlease's source with Go installed", runtime.GOOS, runtime.GOARCH, c.arch)
	}
	path, err = os.Executable()
	if err != nil {
		return "", "", fmt.Errorf("find this program's file: %w", err)
	}
	return path, "this program", nil
}

// sourceRoot is the root of pushlease's source, if this runs inside it and Go is there.
func sourceRoot() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	if _, err := exec.LookPath("go"); err != nil {
		return ""
	}
	for {
		if isOurs(filepath.Join(dir, "go.mod")) {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

func isOurs(goMod string) bool {
	f, err := os.Open(goMod) //nolint:gosec // a folder above this one
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	return lines.Scan() && strings.TrimSpace(lines.Text()) == "module github.com/pushlease/pushlease"
}

// checkProgram makes sure that Azure can run it: what it can't run looks there like a
// handler that never comes up.
func checkProgram(path, arch string) error {
	const cure = "run this in a clone of pushlease, which builds it from source, or name with --binary one that was built with CGO_ENABLED=0 GOOS=linux GOARCH="
	f, err := elf.Open(path)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is no program for Linux; %s%s", path, cure, arch)
	}
	if err != nil {
		return fmt.Errorf("open the program: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		return fmt.Errorf("%s is a program for another processor than %s; %s%s", path, arch, cure, arch)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("%s needs libraries that Azure may not have; %s%s", path, cure, arch)
	}
	return nil
}

// writePackage writes the zip beside out and moves it there when it is whole.
func writePackage(out string, files map[string][]byte, program string) (size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(out), ".pushlease-*.zip")
	if err != nil {
		return 0, fmt.Errorf("write the package: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()           // the error says it
			_ = os.Remove(f.Name()) // a half-written one helps nobody
		}
	}()
	z := zip.NewWriter(f)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := addFile(z, name, modeFile, strings.NewReader(string(files[name]))); err != nil {
			return 0, err
		}
	}
	bin, err := os.Open(program) //nolint:gosec // what the caller named
	if err != nil {
		return 0, fmt.Errorf("open the program: %w", err)
	}
	defer func() { _ = bin.Close() }() // only read
	info, err := bin.Stat()
	if err != nil {
		return 0, fmt.Errorf("open the program: %w", err)
	}
	if err := addFile(z, app.FunctionsExecutable, modeProgram, bin); err != nil {
		return 0, err
	}
	if err := errors.Join(z.Close(), f.Chmod(modeFile), f.Close()); err != nil {
		return 0, fmt.Errorf("write the package: %w", err)
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return 0, fmt.Errorf("write the package: %w", err)
	}
	return info.Size(), nil
}

// packagedAt is the time of all files, so that the same content makes the same zip.
var packagedAt = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

func addFile(z *zip.Writer, name string, mode fs.FileMode, content io.Reader) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: packagedAt}
	h.SetMode(mode)
	w, err := z.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, content)
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return nil
}
