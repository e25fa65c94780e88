// An example of a controller: it publishes the text of Pages (definition.yaml) in ConfigMaps. Client, cache and manager are those of
// controller-runtime, unmodified and with their defaults.
//
//	KUBECONFIG=FILE controller-example -instance=NAME [-leader-elect] [-v=6]
//
// With -v=6 client-go logs each request. SIGTERM and SIGINT end the program.
package main

import (
	"context"
	"flag"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// manager is the field manager of server-side applies, and the reporter of events.
const manager = "page-controller"

func main() {
	klog.InitFlags(nil)
	instance := flag.String("instance", "", "name of this process in the status of Pages")
	leaderElect := flag.Bool("leader-elect", false, "reconcile only with the lease")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *instance, *leaderElect); err != nil {
		klog.ErrorS(err, "The controller failed")
		klog.Flush()
		os.Exit(1)
	}
	klog.InfoS("The controller ended", "instance", *instance)
	klog.Flush()
}

func run(ctx context.Context, instance string, leaderElect bool) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	addToScheme(scheme)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                leaderElect,
		LeaderElectionID:              "page-controller.example.com",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &Page{}, secretIndex, secretNames); err != nil {
		return err
	}
	pages := &reconciler{
		Client:   mgr.GetClient(),
		recorder: mgr.GetEventRecorder(manager),
		instance: instance,
	}
	// The generation is counted up by edits of the spec and by the deletion, not by writes of status and finalizers.
	err = ctrl.NewControllerManagedBy(mgr).
		For(&Page{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		Watches(
			&corev1.Secret{},
			handler.EnqueueRequestsFromMapFunc(pages.ofSecret),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}),
		).
		Complete(pages)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// secretIndex is the field of the index of Pages by Secret.
const secretIndex = ".spec.secretName"

func secretNames(object client.Object) []string {
	if page, ok := object.(*Page); ok && page.Spec.SecretName != "" {
		return []string{page.Spec.SecretName}
	}
	return nil
}
