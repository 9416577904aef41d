//! The feature gates of Kubernetes 1.36 as every component knows them.
//!
//! A gate that became stable in the latest version is not listed as locked unless it is known to be: to refuse what kube-proxy accepts is worse than
//! the other way round, and none of those concerns a service proxy.

use super::Stage;

/// Names with blanks between, their stage, whether they are on, and whether that can no longer be changed.
pub(super) const REGISTRY: [(&str, Stage, bool, bool); 9] = [
    (ALPHA, Stage::Alpha, false, false),
    (BETA, Stage::Beta, true, false),
    (BETA_OFF, Stage::Beta, false, false),
    (STABLE, Stage::Stable, true, false),
    (STABLE_LOCKED, Stage::Stable, true, true),
    (DEPRECATED, Stage::Deprecated, true, false),
    (DEPRECATED_OFF, Stage::Deprecated, false, false),
    (DEPRECATED_LOCKED, Stage::Deprecated, true, true),
    (DEPRECATED_LOCKED_OFF, Stage::Deprecated, false, true),
];

const ALPHA: &str = "
    AllAlpha APIServingWithRoutine AllowUnsafeMalformedObjectDeletion
    CBORServingAndStorage CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
    ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource CustomCPUCFSQuotaPeriod
    DRAListTypeAttributes DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims
    EventedPLEG
    GangScheduling GenericWorkload
    HPAScaleToZero
    ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory InTreePluginPortworxUnregister
    KubeletInUserNamespace
    LoggingAlphaOptions
    ManifestBasedAdmissionControlConfig MemoryQoS MutablePVNodeAffinity
    NativeHistograms
    PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI
    QOSReserved
    ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
    ShardedListAndWatch StorageCapacityScoring StorageVersionAPI
    TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions
    UserNamespacesHostNetworkSupport
    VolumeLimitScaling
    WindowsCPUAndMemoryAffinity WorkloadWithJob
";

const BETA: &str = "
    APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO AuthorizePodWebsocketUpgradeCreatePermission
    CPUManagerPolicyBetaOptions ClearingNominatedNodeNameAfterBinding ComponentFlagz ComponentStatusz ConstrainedImpersonation
    ContainerCheckpoint ContainerRestartRules ContextualLogging
    DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
    DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout DeclarativeValidationBeta
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableCPUQuotaWithExclusiveCPUs
    EnvFiles ExtendWebSocketsToKubelet
    GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
    HPAConfigurableTolerance HostnameOverride
    InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
    KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
    ListFromCacheSnapshot LoggingBetaOptions
    MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge MutablePodResourcesForSuspendedJobs
    MutableSchedulingDirectivesForSuspendedJobs
    NodeDeclaredFeatures NominatedNodeNameForExpectation
    OpenAPIEnums OpportunisticBatching
    PodDeletionCost PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
    PreventStaticPodAPIReferences
    RelaxedServiceNameValidation ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus
    RestartAllContainersOnContainerExits RotateKubeletServerCertificate
    SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
    StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
    StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash StrictIPCIDRValidation
    StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
    WatchCacheInitializationPostStartHook WatchList WatchListClient WindowsGracefulNodeShutdown
";

const BETA_OFF: &str = "
    AllBeta CRDObservedGenerationTracking ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode
    CoordinatedLeaderElection DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
    PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator
";

const STABLE: &str = "
    AllowServiceExternalIPs DRAAdminAccess DRAPrioritizedList DeclarativeValidation ExternalServiceAccountTokenSigner ImageVolume
    InformerResourceVersion KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet
    MutableCSINodeAllocatableCount MutatingAdmissionPolicy NodeLogQuery ProcMountType SELinuxChangePolicy SELinuxMountReadWriteOncePod
    TopologyManagerPolicyOptions UserNamespacesSupport
";

const STABLE_LOCKED: &str = "
    APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors AuthorizeWithSelectors
    BtreeWatchCache
    CPUManagerPolicyOptions CRDValidationRatcheting CSIServiceAccountTokenSecrets ConsistentListFromCache CustomResourceFieldSelectors
    DisableAllocatorDualWrite DynamicResourceAllocation
    ExecProbeTimeout
    ImageMaximumGCAge InOrderInformers InPlacePodVerticalScaling
    JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy
    KubeletCgroupDriverFromCRI KubeletTracing
    LogarithmicScaleDown
    MatchLabelKeysInPodAffinity MemoryManager MultiCIDRServiceAllocator
    NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeSwap
    OrderedNamespaceDeletion
    PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
    PreferSameTrafficDistribution
    RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
    ResilientWatchCacheInitialization RetryGenerateName
    SchedulerQueueingHints SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
    ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers StreamingCollectionEncodingToJSON
    StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration StructuredAuthorizationConfiguration
    SupplementalGroupsPolicy SystemdWatchdog
    VolumeAttributesClass
    WinDSR WinOverlay
";

const DEPRECATED: &str = "
    DisableNodeKubeProxyVersion KubeletPodResourcesListUseActivePods StorageNamespaceIndex
";

const DEPRECATED_OFF: &str = "
    AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests ChangeContainerStatusOnKubeletRestart
    DeclarativeValidationTakeover GitRepoVolumeDriver InPlacePodVerticalScalingAllocatedStatus KMSv1 KubeletRegistrationGetOnExistsOnly
    SeparateCacheWatchRPC WindowsHostNetwork
";

const DEPRECATED_LOCKED: &str = "AggregatedDiscoveryRemoveBetaType";

const DEPRECATED_LOCKED_OFF: &str =
    "AllowOverwriteTerminationGracePeriodSeconds WatchFromStorageWithoutResourceVersion";
