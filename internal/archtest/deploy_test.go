package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/pushlease/pushlease/internal/config"
)

// readYAML reads the documents of a file that no other tool here reads.
func readYAML(t *testing.T, path string) (docs []map[string]any) {
	t.Helper()
	file, err := parser.ParseBytes([]byte(read(t, path)), 0)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, d := range file.Docs {
		var doc map[string]any
		if err = yaml.NodeToValue(d.Body, &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		docs = append(docs, doc)
	}
	return docs
}

// in follows names, and [0] of lists, into a document; nil where there is nothing.
func in(doc any, names ...string) any {
	for _, name := range names {
		if list, ok := doc.([]any); ok && len(list) > 0 {
			doc = list[0]
		}
		members, _ := doc.(map[string]any)
		doc = members[name]
	}
	return doc
}

// Every variable of ours in the files for deploying is a setting.
func TestFilesForDeployingSetWhatIsThere(t *testing.T) {
	known := []string{"PUSHLEASE_API_KEY"} // the command line's
	for _, s := range config.Settings() {
		known = append(known, s.Env)
	}
	for _, path := range []string{"Dockerfile", "deploy/compose.yaml", "deploy/kubernetes/deployment.yaml", "deploy/systemd/pushlease.service"} {
		for _, name := range regexp.MustCompile(`PUSHLEASE_[A-Z_]+`).FindAllString(read(t, path), -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no setting %s", path, name)
			}
		}
	}
}

// Whoever stops a process waits as long as its default settings take: drain, and 20 s more.
func TestFilesForDeployingLeaveTimeToStop(t *testing.T) {
	var drain time.Duration
	for _, s := range config.Settings() {
		if s.Name == "drain" {
			drain, _ = time.ParseDuration(s.Default)
		}
	}
	if drain == 0 {
		t.Fatal("drain has no default")
	}
	for path, pattern := range map[string]string{
		"deploy/compose.yaml": `stop_grace_period: (\d+s)`, "deploy/kubernetes/deployment.yaml": `terminationGracePeriodSeconds: (\d+)`,
		"deploy/systemd/pushlease.service": `TimeoutStopSec=(\d+)`, "docs/container-apps.md": `--termination-grace-period (\d+)`,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
		if found == nil {
			t.Errorf("%s says nothing of how long a stop may take", path)
			continue
		}
		if wait, err := time.ParseDuration(strings.TrimSuffix(found[1], "s") + "s"); err != nil || wait < drain+20*time.Second {
			t.Errorf("%s waits %s for a stop, which takes up to %s", path, found[1], drain+20*time.Second)
		}
	}
}

func TestTheImageIsBuiltAsTheProjectAndRunsWithoutRights(t *testing.T) {
	text := read(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	for _, want := range []string{"golang:" + version + " ", "-tags grpcnotrace", "-X main.version=", "\nUSER 65532:65532\n", "static-debian12:nonroot", "./cmd/pushlease"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	var services map[string]any
	services, _ = in(readYAML(t, "deploy/compose.yaml")[0], "services").(map[string]any)
	if len(services) != 3 || in(services, "pushlease", "build") != ".." || in(services, "receiver", "build") != ".." {
		t.Errorf("compose.yaml: %v", services)
	}
	release := readYAML(t, "deploy/goreleaser.yaml")[0]
	if _, err := os.Stat(filepath.Join("..", "..", in(release, "builds", "main").(string), "main.go")); err != nil || !strings.Contains(in(release, "builds", "ldflags").([]any)[0].(string), "-X main.version=") {
		t.Errorf("a release is built of %v: %v", in(release, "builds"), err)
	}
	for _, c := range in(release, "nfpms", "contents").([]any) {
		if text := read(t, in(c, "src").(string)); !strings.Contains(text, "ExecStart=/usr/bin/pushlease serve\n") {
			t.Errorf("packages have the binary in /usr/bin: %s", text)
		}
	}
	for _, path := range []string{"ci", "release"} {
		if doc := readYAML(t, ".github/workflows/"+path+".yml")[0]; in(doc, "jobs") == nil || in(doc, "permissions", "contents") == nil {
			t.Errorf("%s: %v", path, doc)
		}
	}
}

func TestTheKubernetesFilesGoTogether(t *testing.T) {
	const folder = "deploy/kubernetes/"
	kustomization := readYAML(t, folder+"kustomization.yaml")[0]
	listed := []string{"kustomization.yaml"}
	for _, r := range in(kustomization, "resources").([]any) {
		listed = append(listed, r.(string))
	}
	slices.Sort(listed)
	files, err := os.ReadDir(filepath.Join("..", "..", filepath.FromSlash(folder)))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, f := range files {
		there = append(there, f.Name())
	}
	if !slices.Equal(listed, there) {
		t.Errorf("kustomization.yaml lists %v, and there are %v", listed, there)
	}
	for _, path := range there {
		for _, doc := range readYAML(t, folder+path) {
			if in(doc, "apiVersion") == nil || in(doc, "kind") == nil || path != "kustomization.yaml" && in(doc, "metadata", "name") != "pushlease" {
				t.Errorf("%s is no resource called pushlease: %v", path, doc)
			}
		}
	}
	pod := in(readYAML(t, folder+"deployment.yaml")[0], "spec", "template", "spec")
	if in(pod, "containers", "livenessProbe", "httpGet", "path") != "/healthz" || in(pod, "containers", "readinessProbe", "httpGet", "path") != "/readyz" ||
		in(pod, "containers", "ports", "name") != in(readYAML(t, folder+"service.yaml")[0], "spec", "ports", "targetPort") ||
		in(pod, "securityContext", "runAsNonRoot") != true || in(pod, "containers", "securityContext", "readOnlyRootFilesystem") != true {
		t.Errorf("the pod is %v", pod)
	}
	selects := in(readYAML(t, folder+"poddisruptionbudget.yaml")[0], "spec", "selector", "matchLabels", "app.kubernetes.io/name")
	if labels := in(kustomization, "labels", "pairs", "app.kubernetes.io/name"); selects != labels || labels == nil {
		t.Errorf("the disruption budget is of pods of the name %v, and they have %v", selects, labels)
	}
	scaled := readYAML(t, folder+"scaledobject.yaml")
	metrics := instruments(t)
	for _, trigger := range in(scaled[0], "spec", "triggers").([]any) {
		switch in(trigger, "type") {
		case "azure-queue":
			if in(trigger, "metadata", "queueLengthStrategy") != "visibleonly" || in(trigger, "authenticationRef", "name") != in(scaled[1], "metadata", "name") {
				t.Errorf("by the depth: %v", trigger)
			}
		case "prometheus":
			if unknown := unknownNames(strings.ReplaceAll(in(trigger, "metadata", "query").(string), `"orders"`, ""), metrics); len(unknown) > 0 {
				t.Errorf("by what is at work: no metrics are %v", unknown)
			}
		default:
			t.Errorf("a trigger of another kind: %v", trigger)
		}
	}
}
