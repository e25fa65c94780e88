package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// finalizer keeps a Page until its record, which it does not own, is deleted.
const finalizer = "example.com/record"

type reconciler struct {
	client.Client
	recorder events.EventRecorder
	instance string
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var page Page
	if err := r.Get(ctx, request.NamespacedName, &page); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !page.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &page)
	}
	if controllerutil.AddFinalizer(&page, finalizer) {
		if err := r.Update(ctx, &page); err != nil {
			return ctrl.Result{}, err
		}
	}
	checksum, err := r.checksum(ctx, &page)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.writeRecord(ctx, &page); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.writeText(ctx, &page, checksum); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.applyText(ctx, &page); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.writeStatus(ctx, &page)
}

// ofSecret returns the Pages that name the Secret, by the index.
func (r *reconciler) ofSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	var pages PageList
	err := r.List(ctx, &pages, client.InNamespace(secret.GetNamespace()), client.MatchingFields{secretIndex: secret.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list Pages")
		return nil
	}
	requests := make([]ctrl.Request, 0, len(pages.Items))
	for i := range pages.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pages.Items[i])})
	}
	return requests
}

// checksum returns that of the data of the Secret; empty without one.
func (r *reconciler) checksum(ctx context.Context, page *Page) (string, error) {
	if page.Spec.SecretName == "" {
		return "", nil
	}
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: page.Namespace, Name: page.Spec.SecretName}
	if err := r.Get(ctx, key, &secret); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
		hash.Write([]byte(name))
		hash.Write(secret.Data[name])
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// writeRecord writes a ConfigMap without an owner: no garbage collector deletes it.
func (r *reconciler) writeRecord(ctx context.Context, page *Page) error {
	record := configMap(page, "-record")
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, record, func() error {
		record.Data = map[string]string{"uid": string(page.UID)}
		return nil
	})
	return err
}

// writeText replaces the whole data of an owned ConfigMap.
func (r *reconciler) writeText(ctx context.Context, page *Page, checksum string) error {
	text := configMap(page, "-text")
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, text, func() error {
		text.Data = map[string]string{"text": page.Spec.Text, "checksum": checksum}
		return controllerutil.SetControllerReference(page, text, r.Scheme())
	})
	return err
}

// applyText applies one key of an owned ConfigMap. Other keys belong to other managers and stay.
func (r *reconciler) applyText(ctx context.Context, page *Page) error {
	owner := metav1ac.OwnerReference().
		WithAPIVersion(groupVersion.String()).
		WithKind("Page").
		WithName(page.Name).
		WithUID(page.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
	applied := corev1ac.ConfigMap(page.Name+"-applied", page.Namespace).
		WithOwnerReferences(owner).
		WithData(map[string]string{"text": page.Spec.Text})
	return r.Apply(ctx, applied, client.FieldOwner(manager), client.ForceOwnership)
}

// writeStatus patches the status subresource, and records an event if the status changed.
func (r *reconciler) writeStatus(ctx context.Context, page *Page) error {
	before := page.DeepCopy()
	page.Status.ObservedGeneration = page.Generation
	page.Status.Instance = r.instance
	meta.SetStatusCondition(&page.Status.Conditions, metav1.Condition{
		Type:               "Ready",
		Status:             metav1.ConditionTrue,
		Reason:             "Published",
		Message:            "The text is published",
		ObservedGeneration: page.Generation,
	})
	if equality.Semantic.DeepEqual(before.Status, page.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, page, client.MergeFrom(before)); err != nil {
		return err
	}
	r.recorder.Eventf(page, nil, corev1.EventTypeNormal, "Published", "Publish", "Published generation %d", page.Generation)
	return nil
}

func (r *reconciler) finalize(ctx context.Context, page *Page) error {
	if !controllerutil.ContainsFinalizer(page, finalizer) {
		return nil
	}
	if err := r.Delete(ctx, configMap(page, "-record")); client.IgnoreNotFound(err) != nil {
		return err
	}
	before := page.DeepCopy()
	controllerutil.RemoveFinalizer(page, finalizer)
	return client.IgnoreNotFound(r.Patch(ctx, page, client.MergeFrom(before)))
}

func configMap(page *Page, suffix string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: page.Namespace, Name: page.Name + suffix}}
}
