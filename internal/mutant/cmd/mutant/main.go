// Command mutant puts each fault of its list into the code and runs the tests that have to
// notice it. It ends with status 1 when one survives.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pushlease/pushlease/internal/mutant"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutant:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("run", "", "only the faults whose name matches this regular expression")
	list := flag.Bool("list", false, "list the faults and what each brings")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var patches []mutant.Patch
	for _, p := range mutant.All() {
		if wanted.MatchString(p.Name) {
			patches = append(patches, p)
		}
	}
	if *list {
		for _, p := range patches {
			fmt.Printf("%s\n\t%s\n\tgo test %s\n", p.Name, p.Brings, strings.Join(p.Tests, " "))
		}
		return nil
	}
	if len(patches) == 0 {
		return fmt.Errorf("no fault's name matches %q", *only)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if err := mutant.Unpatched(ctx, root, patches); err != nil {
		return err
	}
	return report(ctx, root, patches)
}

// report runs the patches one after the other, a line for each as it ends.
func report(ctx context.Context, root string, patches []mutant.Patch) error {
	var survivors []string
	for _, p := range patches {
		r, err := mutant.Run(ctx, root, p)
		if err != nil {
			return err
		}
		took := r.Took.Round(100 * time.Millisecond)
		switch {
		case !r.Noticed:
			survivors = append(survivors, p.Name)
			fmt.Printf("SURVIVED %s (%s): %s\n", p.Name, took, p.Brings)
			if p.Rule != "" {
				fmt.Printf("         the simulation has to find it by %q, and found %q\n", p.Rule, r.Rules)
			}
		case len(r.By) == 0:
			fmt.Printf("noticed  %s (%s) by a test that did not end by itself\n", p.Name, took)
		default:
			fmt.Printf("noticed  %s (%s) by %s\n", p.Name, took, strings.Join(r.By, ", "))
		}
	}
	fmt.Printf("%d of %d faults noticed\n", len(patches)-len(survivors), len(patches))
	if len(survivors) > 0 {
		return fmt.Errorf("no test notices %s", strings.Join(survivors, ", "))
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
